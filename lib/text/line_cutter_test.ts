import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { LineCutter } from "./lines.ts";

const decoder = new TextDecoder();
const encoder = new TextEncoder();

/** The lines of a text that comes in pieces of these sizes, again and again; each as what is kept of it and its length. */
function cut(text: string, sizes: readonly number[], mostBytes?: number): (readonly [string, number])[] {
  const lines: (readonly [string, number])[] = [];
  const cutter = new LineCutter((bytes, start, end, length) => {
    lines.push([decoder.decode(bytes.subarray(start, end)), length]);
  }, mostBytes);
  const bytes = encoder.encode(text);
  const memory = new Uint8Array(bytes.length);
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const piece = bytes.subarray(at, at + sizes[turn % sizes.length]!);
    // As of a program's output, the memory is used again.
    memory.set(piece);
    cutter.write(memory.subarray(0, piece.length));
    memory.fill(0x21);
    at += piece.length;
  }
  assertEquals(cutter.openBytes, bytes.length - bytes.lastIndexOf(10) - 1);
  cutter.end();
  assertEquals(cutter.openBytes, 0);
  return lines;
}

Deno.test("lines are the same in whatever pieces they come", { permissions: "none" }, () => {
  const text = fc.string({ unit: fc.constantFrom("a", "bc", "\n", "é"), maxLength: 40 });
  const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(text, sizes, (text, sizes) => {
      const lines = text.split("\n");
      if (lines.at(-1) === "") lines.pop();
      assertEquals(cut(text, sizes), lines.map((line) => [line, encoder.encode(line).length] as const));
    }),
  );
});

Deno.test("of a long line that comes in pieces the beginning is kept, and its length known", {
  permissions: "none",
}, () => {
  assertEquals(cut("ab\nabcdefgh\ncd\nabcdefgh", [3], 5), [["ab", 2], ["abcde", 8], ["cd", 2], ["abcde", 8]]);
  assertEquals(cut("abcdefgh\n", [99], 5), [["abcdefgh", 8]]);
});

Deno.test("what was cleared is in no line", { permissions: "none" }, () => {
  const lines: string[] = [];
  const cutter = new LineCutter((bytes, start, end) => {
    lines.push(decoder.decode(bytes.subarray(start, end)));
  });
  cutter.write(encoder.encode("a\nb"));
  cutter.clear();
  cutter.write(encoder.encode("c\n"));
  cutter.end();
  assertEquals(lines, ["a", "c"]);
});
