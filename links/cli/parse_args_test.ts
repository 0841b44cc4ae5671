import { assertEquals } from "@std/assert";
import { parseArgs } from "@std/cli/parse-args";

Deno.test("parseArgs splits switches, texts, lists and words", { permissions: "none" }, () => {
  const args = [
    "--all",
    "--name=x",
    "--mode",
    "ipvs",
    "--only",
    "a",
    "--only=b",
    "-h",
    "word",
    "7",
    "--",
    "--raw",
  ];
  const options = {
    boolean: ["all", "help", "quiet"],
    string: ["name", "mode", "absent"],
    collect: ["only"],
    alias: { help: "h" },
    "--": true,
  } as const;
  assertEquals<unknown>(parseArgs(args, options), {
    all: true,
    help: true,
    h: true,
    quiet: false,
    name: "x",
    mode: "ipvs",
    only: ["a", "b"],
    _: ["word", 7],
    "--": ["--raw"],
  });
});

Deno.test("parseArgs knows defaults, negation, and where to stop", { permissions: "none" }, () => {
  const options = {
    boolean: ["color"],
    negatable: ["color"],
    default: { color: true },
    stopEarly: true,
  } as const;
  assertEquals(parseArgs([], options), { color: true, _: [] });
  assertEquals(parseArgs(["--no-color", "run", "--color"], options), { color: false, _: ["run", "--color"] });
});

Deno.test("parseArgs reports flags that are not listed", { permissions: "none" }, () => {
  const seen: string[] = [];
  const unknown = (arg: string): boolean => {
    seen.push(arg);
    return false;
  };
  assertEquals(parseArgs(["--what=1", "--all"], { boolean: ["all"], unknown }), { all: true, _: [] });
  assertEquals(seen, ["--what=1"]);
});

Deno.test("parseArgs reads letters, numbers and words that follow as the real package does", {
  permissions: "none",
}, () => {
  const options = { boolean: ["help"], string: ["v", "name"], alias: { help: "h" } } as const;
  const cases: readonly [args: readonly string[], found: Record<string, unknown>][] = [
    [["-v4"], { v: "4" }],
    [["-v=4"], { v: "4" }],
    [["-v", "4"], { v: "4" }],
    [["-v", "-4"], { v: "", "4": true }],
    [["-hv4"], { h: "v4", help: "v4" }],
    [["-hx"], { h: true, help: true, x: true }],
    [["--help", "false"], { h: false, help: false }],
    [["--help=0"], { h: true, help: true }],
    [["--name"], { name: "" }],
    [["--name", "", "07"], { name: "", _: ["", 7] }],
    [["--name=a=b"], { name: "a=b" }],
    [["--name", "--", "x"], { name: "", _: ["x"] }],
    [["--no-help"], { "no-help": true }],
    [["--other", "0x10"], { other: 16 }],
    [["-"], { _: ["-"] }],
  ];
  for (const [args, found] of cases) {
    assertEquals<unknown>(
      parseArgs(args, options),
      { help: false, h: false, _: [], ...found },
      args.join(" "),
    );
  }
});
