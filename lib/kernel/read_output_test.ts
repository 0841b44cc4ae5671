import { assertEquals } from "@std/assert";
import { readOutput } from "./read_output.ts";

function byteStream(pieces: readonly Uint8Array<ArrayBuffer>[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    type: "bytes",
    start: (controller) => {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
}

const CASES: readonly [name: string, text: string, pieceBytes: number][] = [
  ["nothing", "", 1],
  ["a line", "done\n", 100],
  ["characters that are cut between reads", "→ é 😀\n", 1],
  ["as much as a buffer holds", "x".repeat(4096), 4096],
  ["much, in large pieces", "0123456789abcde\n".repeat(300_000), 2 ** 20],
  ["much, in small pieces", "0123456789abcde\n".repeat(20_000), 999],
];
for (const [name, text, pieceBytes] of CASES) {
  Deno.test(`output is read whole: ${name}`, { permissions: "none" }, async () => {
    const bytes = new TextEncoder().encode(text);
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for (let at = 0; at < bytes.length; at += pieceBytes) pieces.push(bytes.slice(at, at + pieceBytes));
    assertEquals(await readOutput(byteStream(pieces), { maxBytes: text.length * 4 }), text);
  });
}

Deno.test(
  "of output without an end the beginning is kept, and all of it is counted",
  { permissions: "none" },
  async () => {
    const pieces = Array.from({ length: 50 }, () => new TextEncoder().encode("0123456789"));
    let bytes = 0;
    const text = await readOutput(byteStream(pieces), { maxBytes: 25, onBytes: (count) => bytes += count });
    assertEquals([text, bytes], ["0123456789012345678901234", 500]);
  },
);
