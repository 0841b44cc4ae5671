import { assertEquals } from "@std/assert";
import { errorTerminal } from "./terminal.ts";

Deno.test("only a terminal that can be drawn on is one, with its locale's characters", {
  permissions: "none",
}, () => {
  const stream = (isTerminal: boolean): Pick<typeof Deno.stderr, "isTerminal" | "writeSync"> => ({
    isTerminal: () => isTerminal,
    writeSync: (bytes) => bytes.length,
  });
  const cases: readonly [isTerminal: boolean, env: Record<string, string>, unicode: boolean | undefined][] = [
    [false, { TERM: "xterm", LANG: "C.UTF-8" }, undefined],
    [true, { TERM: "dumb", LANG: "C.UTF-8" }, undefined],
    [true, { TERM: "xterm", LANG: "C.UTF-8" }, true],
    [true, { TERM: "xterm", LANG: "C.UTF-8", LC_ALL: "C" }, false],
    [true, { LC_ALL: "", LC_CTYPE: "de_DE.utf8" }, true],
    [true, {}, false],
  ];
  for (const [isTerminal, env, unicode] of cases) {
    assertEquals(
      errorTerminal(stream(isTerminal), (name) => env[name])?.hasUnicode,
      unicode,
      JSON.stringify(env),
    );
  }
});
