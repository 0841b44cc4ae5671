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
  assertEquals(parseArgs(args, options), {
    all: true,
    help: true,
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
