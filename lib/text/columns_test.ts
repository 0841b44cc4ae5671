import { assertEquals } from "@std/assert";
import { alignColumns, cutToWidth, padToWidth, wrapWords } from "./columns.ts";

Deno.test("columns are as wide as a terminal shows their cells", { permissions: "none" }, () => {
  assertEquals(alignColumns([["name", "", "ms"], ["節点", "e\u0301", "1 ×"], ["a-long-name", "x", ""]]), [
    "name            ms",
    "節点         e\u0301  1 ×",
    "a-long-name  x",
  ]);
  assertEquals(alignColumns([]), []);
  assertEquals([padToWidth("漢", 4), padToWidth("abc", 2)], ["漢  ", "abc"]);
});

Deno.test("one cell without an end widens no other row", { permissions: "none" }, () => {
  const long = "x".repeat(1_000_000);
  const rows = Array.from({ length: 10_000 }, (_, index) => [`name-${index}`, "1"]);
  const lines = alignColumns([...rows, [long, "1"]]);
  assertEquals([lines[0], lines.at(-1)], ["name-0     1", `${long}  1`]);
});

Deno.test("text is cut before the character that does not fit", { permissions: "none" }, () => {
  const cases: readonly [text: string, width: number, cut: string][] = [
    ["abc", 3, "abc"],
    ["abc", 2, "ab"],
    ["漢字", 3, "漢"],
    ["e\u0301a", 1, "e\u0301"],
    ["abc", 0, ""],
  ];
  for (const [text, width, cut] of cases) assertEquals(cutToWidth(text, width), cut);
});

Deno.test("words are wrapped by their width", { permissions: "none" }, () => {
  assertEquals(wrapWords("one two three", 7), ["one two", "three"]);
  assertEquals(wrapWords("漢字 漢字", 8), ["漢字", "漢字"]);
  assertEquals(wrapWords("a-very-long-word b", 4), ["a-very-long-word", "b"]);
  assertEquals(wrapWords("", 4), []);
});
