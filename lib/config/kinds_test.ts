import { assert, assertEquals } from "@std/assert";
import type { FlagValue } from "./flags_overlay.ts";
import { ValueError } from "./value_texts.ts";
import { type Kind, type KindName, KINDS } from "./kinds.ts";

/** Value of a flag's text, or the message about a wrong one. */
function read(
  kind: KindName,
  text: string,
  previous?: FlagValue,
): { value: FlagValue } | { problem: string } {
  try {
    return { value: (KINDS[kind] as Kind<FlagValue>).parse(text, previous) };
  } catch (error) {
    if (error instanceof ValueError) return { problem: error.message };
    throw error;
  }
}

type Good = readonly [kind: KindName, text: string, value: FlagValue];

const GOOD: readonly Good[] = [
  ["string", "", ""],
  ["string", " a=b ", " a=b "],
  ...["1", "t", "T", "TRUE", "true", "True"].map((text): Good => ["bool", text, true]),
  ...["0", "f", "F", "FALSE", "false", "False"].map((text): Good => ["bool", text, false]),
  ["int", "14", 14],
  ["int", "-999", -999],
  ["int", "+7", 7],
  ["int", "0x10", 16],
  ["int", "0b11", 3],
  ["int", "0o17", 15],
  ["int", "017", 15],
  ["int", "-0", 0],
  ["int", "2147483647", 2147483647],
  ["int", "-2147483648", -2147483648],
  ["int", "1_000", 1000],
  ["int", "0x_1f", 31],
  ["level", "0", 0],
  ["level", "010", 10],
  ["level", "2147483647", 2147483647],
  ["float", "5", 5],
  ["float", "-0.5", -0.5],
  ["float", "1e2", 100],
  ["float", ".5", 0.5],
  ["duration", "0", 0],
  ["duration", "30s", 30_000],
  ["duration", "1h30m", 5_400_000],
  ["duration", "250ms", 250],
  ["list", "", []],
  ["list", "10.0.0.0/8", ["10.0.0.0/8"]],
  ["list", "a,b,c", ["a", "b", "c"]],
  ["list", '"a,b",c', ["a,b", "c"]],
  ["list", '"say ""hi"""', ['say "hi"']],
  ["list", "a,", ["a", ""]],
  ["paths", "dir,with,commas", ["dir,with,commas"]],
  ["paths", "-", ["-"]],
  ["ip", "", ""],
  ["ip", "0.0.0.0", "0.0.0.0"],
  ["ip", "::", "::"],
  ["ip", "010.0.0.1", "010.0.0.1"],
  ["address", "", ""],
  ["address", "127.0.0.1", "127.0.0.1"],
  ["address", "127.0.0.1:10249", "127.0.0.1:10249"],
  ["address", "fd00::1", "fd00::1"],
  ["address", "[fd00::1]:65535", "[fd00::1]:65535"],
  ["gates", "", {}],
  ["gates", "A=true,B=false", { A: true, B: false }],
  ["gates", " A = t , B=0 ", { A: true, B: false }],
  ["vmodule", "", []],
  ["vmodule", "proxier=4,sync*=2", [{ filePattern: "proxier", verbosity: 4 }, {
    filePattern: "sync*",
    verbosity: 2,
  }]],
  ["quantity", "0", "0"],
  ["quantity", "64Mi", "64Mi"],
  ["quantity", "1.5k", "1.5k"],
  ["version", "true", "true"],
  ["version", "0", "false"],
  ["version", "raw", "raw"],
  ["version", "v1.30.5", "v1.30.5"],
];

Deno.test("each kind takes the spellings kube-proxy takes", { permissions: "none" }, () => {
  for (const [kind, text, value] of GOOD) {
    assertEquals(read(kind, text), { value }, `${kind} ${JSON.stringify(text)}`);
  }
});

const BAD: readonly [kind: KindName, text: string, problem: string][] = [
  ["bool", "", "want true or false"],
  ["bool", "yes", "want true or false"],
  ["bool", "tRUE", "want true or false"],
  ["int", "", "want an integer"],
  ["int", "1.5", "want an integer"],
  ["int", "08", "want an integer"],
  ["int", "12a", "want an integer"],
  ["int", "2147483648", "want an integer from -2147483648 to 2147483647"],
  ["int", "1__0", "want an integer"],
  ["int", "_1", "want an integer"],
  ["int", "1_", "want an integer"],
  ["level", "0x10", "want an integer from 0 to 2147483647"],
  ["level", "-1", "want an integer from 0 to 2147483647"],
  ["level", "+1", "want an integer from 0 to 2147483647"],
  ["level", "1_0", "want an integer from 0 to 2147483647"],
  ["level", "2147483648", "want an integer from 0 to 2147483647"],
  ["level", "", "want an integer from 0 to 2147483647"],
  ["float", "five", "want a number"],
  ["float", "", "want a number"],
  ["duration", "10", "want a duration like 30s or 1h30m"],
  ["duration", "", "want a duration like 30s or 1h30m"],
  ["duration", "1 s", "want a duration like 30s or 1h30m"],
  ["list", 'a"b', 'want a comma separated list; a " must enclose a whole item'],
  ["list", '"a', 'want a comma separated list; a " must enclose a whole item'],
  ["paths", "", "want a path or -"],
  ["ip", "localhost", "want an IP address"],
  ["ip", "10.0.0.1/8", "want an IP address"],
  ["address", "localhost:80", "want an IP address or IP:port, with IPv6 as [IP]:port"],
  ["address", ":10256", "want an IP address or IP:port, with IPv6 as [IP]:port"],
  ["address", "127.0.0.1:0", "want an IP address or IP:port, with IPv6 as [IP]:port"],
  ["address", "127.0.0.1:65536", "want an IP address or IP:port, with IPv6 as [IP]:port"],
  ["gates", "A", 'want NAME=true or NAME=false, found "A"'],
  ["gates", "=true", 'want NAME=true or NAME=false, found "=true"'],
  ["gates", "A=B=true", 'want NAME=true or NAME=false, found "A=B=true"'],
  ["gates", "A=on", 'want true or false for "A", found "on"'],
  ["vmodule", "proxier", 'want pattern=N with commas between, found "proxier"'],
  ["vmodule", "a=-1", 'want pattern=N with commas between, found "a=-1"'],
  ["quantity", "lots", "want a quantity like 0, 512Ki or 64Mi"],
  ["version", "latest", "want true, false, raw or vX.Y.Z"],
];

Deno.test("each kind says what it wants instead", { permissions: "none" }, () => {
  for (const [kind, text, problem] of BAD) {
    assertEquals(
      read(kind, text),
      { problem },
      `${kind} ${JSON.stringify(text)}`,
    );
  }
  const kinds = new Set(GOOD.map(([kind]) => kind));
  for (const kind of kinds) {
    // Any text is a string.
    if (kind !== "string") assert(BAD.some(([bad]) => bad === kind), `no bad value of kind ${kind}`);
  }
});

Deno.test(
  "lists, paths, gates and vmodule add up, everything else is replaced",
  { permissions: "none" },
  () => {
    const cases: [kind: KindName, first: string, second: string, value: FlagValue][] = [
      ["list", "a,b", "c", ["a", "b", "c"]],
      ["paths", "a", "b", ["a", "b"]],
      ["gates", "A=true,B=true", "B=false", { A: true, B: false }],
      ["vmodule", "a=1", "b=2", [{ filePattern: "a", verbosity: 1 }, { filePattern: "b", verbosity: 2 }]],
      ["int", "1", "2", 2],
      ["string", "a", "", ""],
      ["bool", "true", "false", false],
    ];
    for (const [kind, first, second, value] of cases) {
      const before = read(kind, first);
      assert("value" in before);
      assertEquals(read(kind, second, before.value), { value }, kind);
    }
  },
);
