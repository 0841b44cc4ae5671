import { assertEquals, assertThrows } from "@std/assert";
import { tarEnd, tarPieces } from "./sysdump.ts";

const NONE = { permissions: "none" } as const;

function text(bytes: Uint8Array, from: number, to: number): string {
  return new TextDecoder().decode(bytes.subarray(from, to)).replace(/\0.*$/s, "");
}

Deno.test("a file is a header, its bytes, and zeros up to the next block", NONE, () => {
  const bytes = new TextEncoder().encode("x".repeat(600));
  const [header, content, rest, ...others] = tarPieces({
    name: "dump/a.txt",
    bytes,
    modifiedMs: 1_700_000_000_999,
  });
  assertEquals([content, rest, others], [bytes, new Uint8Array(424), []]);
  const fields = [[0, 100], [100, 108], [124, 136], [136, 148], [156, 157], [257, 263]] as const;
  assertEquals(
    fields.map(([from, to]) => text(header!, from, to)),
    ["dump/a.txt", "0000600", "00000001130", (1_700_000_000).toString(8), "0", "ustar"],
  );
  // As unsigned bytes, its own eight being blanks.
  const sum = header!.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
  assertEquals(Number.parseInt(text(header!, 148, 154), 8), sum);
  assertEquals(tarEnd(), new Uint8Array(1024));
});

Deno.test("a file that fills its blocks, or is empty, gets no zeros", NONE, () => {
  for (const length of [0, 512, 1024]) {
    const pieces = [...tarPieces({ name: "a", bytes: new Uint8Array(length), modifiedMs: 0 })];
    assertEquals(pieces.map((piece) => piece.length), [512, length]);
  }
});

Deno.test("a name that has no room is refused, not cut", NONE, () => {
  for (const name of ["", "x".repeat(101), "ü".repeat(51)]) {
    assertThrows(() => [...tarPieces({ name, bytes: new Uint8Array(), modifiedMs: 0 })], RangeError);
  }
  assertEquals([...tarPieces({ name: "ü".repeat(50), bytes: new Uint8Array(), modifiedMs: 0 })].length, 2);
});
