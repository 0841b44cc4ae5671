import { assertEquals, assertThrows } from "@std/assert";
import { quoteWord, splitWords } from "./iptables_rule.ts";

const CASES: readonly { name: string; line: string; words: string[] }[] = [
  { name: "blanks and tabs separate", line: " -A  X\t-j Y ", words: ["-A", "X", "-j", "Y"] },
  {
    name: "double quotes group",
    line: '--comment "a b" -j X',
    words: ["--comment", "a b", "-j", "X"],
  },
  {
    name: "a backslash escapes inside quotes",
    line: String.raw`"a \"q\" it\'s \\ b"`,
    words: [String.raw`a "q" it's \ b`],
  },
  {
    name: "a backslash outside quotes is a character",
    line: String.raw`a\b "c"`,
    words: [String.raw`a\b`, "c"],
  },
  { name: "single quotes are characters", line: `it's "x"`, words: ["it's", "x"] },
  { name: "an empty quoted word is a word", line: '--comment "" -j X', words: ["--comment", "", "-j", "X"] },
  { name: "quotes may begin inside a word", line: 'a"b c" d', words: ["ab c", "d"] },
  { name: "a closing quote ends the word", line: '"a"b', words: ["a", "b"] },
  { name: "an empty line has none", line: "", words: [] },
];

for (const { name, line, words } of CASES) {
  Deno.test(`splitWords: ${name}`, { permissions: "none" }, () => {
    assertEquals(splitWords(line), words);
  });
}

Deno.test("splitWords: a quote that is not closed is an error", { permissions: "none" }, () => {
  assertThrows(() => splitWords('-m comment --comment "a b'), SyntaxError, "Quote is not closed");
});

Deno.test("quoteWord quotes only what needs it, and splitWords undoes it", { permissions: "none" }, () => {
  assertEquals(quoteWord("shop/web:http"), "shop/web:http");
  assertEquals(quoteWord("a b"), '"a b"');
  for (const word of ["", "x", "a b", 'q"q', "back\\slash", "it's", "tab\tbed", "[fd00::1]:80"]) {
    assertEquals(splitWords(quoteWord(word)), [word]);
  }
});
