import { assertEquals } from "@std/assert";
import { unicodeWidth } from "@std/cli/unicode-width";

Deno.test("a text's width is that of its characters on a terminal", { permissions: "none" }, () => {
  const cases: readonly [text: string, width: number][] = [
    ["", 0],
    ["kproxy", 6],
    ["12.5 × 3 → 37,5 µs …", 20],
    ["é", 1],
    ["e\u0301", 1],
    ["漢字かなカナ", 12],
    ["한글", 4],
    ["ｶﾅ", 2],
    ["ＡＢ！", 6],
    ["「、」", 6],
    ["🦕", 2],
    ["⠋█#", 3],
    ["🇩🇪", 2],
    ["a\u200db", 2],
    ["soft\u00adhyphen", 11],
    ["\t\n\x1b[1m\x7f", 3],
    ["𠀀𰀀", 4],
  ];
  for (const [text, width] of cases) assertEquals(unicodeWidth(text), width, JSON.stringify(text));
});
