import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { countLines, firstLine, LineStarts } from "./lines.ts";

Deno.test("an offset is on the line that the ends before it say", { permissions: "none" }, () => {
  const text = fc.string({ unit: fc.constantFrom("a", "\n", "\r", "é", "😀"), maxLength: 30 });
  fc.assert(
    fc.property(text, fc.nat(30), (text, at) => {
      const offset = Math.min(at, text.length);
      const line = text.slice(0, offset).split("\n").length - 1;
      const lines = LineStarts.of(text);
      assertEquals([lines.lineAt(offset), countLines(text, offset)], [line, line]);
      assertEquals(lines.startOf(line), text.slice(0, offset).lastIndexOf("\n") + 1);
      assertEquals(lines.startOf(text.split("\n").length), undefined);
    }),
  );
});

Deno.test("the first line is all before the first line end", { permissions: "none" }, () => {
  for (const [text, first] of [["", ""], ["a", "a"], ["a\nb\nc", "a"], ["\na", ""]] as const) {
    assertEquals(firstLine(text), first);
  }
  assertEquals([countLines(""), countLines("a\n\nb\n")], [0, 3]);
});
