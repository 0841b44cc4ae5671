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
    assertEquals(await readOutput(byteStream(pieces)), text);
  });
}
