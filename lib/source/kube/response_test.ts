import { assertEquals } from "@std/assert";
import { piecesOf } from "./response.ts";

/** A body that fills what it is given with pieces of these lengths, all of the piece's number. */
function bodyOf(lengths: readonly number[], rooms: number[], reused: boolean[]): ReadableStream<Uint8Array> {
  let next = 0;
  return new ReadableStream({
    type: "bytes",
    pull(controller) {
      const view = controller.byobRequest?.view as Uint8Array<ArrayBuffer> | null | undefined;
      if (view === null || view === undefined) throw new TypeError("not read into the reader's memory");
      const length = lengths[next];
      if (length === undefined) {
        controller.close();
        controller.byobRequest?.respond(0);
        return;
      }
      rooms.push(view.byteLength);
      reused.push(view[0] !== 0);
      next++;
      view.fill(next, 0, length);
      controller.byobRequest?.respond(length);
    },
  });
}

Deno.test("pieces are read into the same memory: little, more after full ones, little again", async () => {
  const lengths = [100, 4096, 16384, 65536, 5000, 3000, 10, 20];
  const rooms: number[] = [];
  const reused: boolean[] = [];
  const found: string[] = [];
  const reading = { signal: new AbortController().signal, note: () => {} };
  for await (const piece of piecesOf(bodyOf(lengths, rooms, reused), reading)) {
    found.push(`${piece.length} × ${[...new Set(piece)]}`);
  }
  assertEquals(found, lengths.map((length, index) => `${length} × ${index + 1}`));
  assertEquals(rooms, [4096, 4096, 16384, 65536, 65536, 65536, 4096, 4096]);
  assertEquals(reused, [false, true, false, false, true, true, false, true]);
});

Deno.test("a body that brings memory of its own is read, too", async () => {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const text of ["one", "two"]) controller.enqueue(new TextEncoder().encode(text));
      controller.close();
    },
  });
  const texts: string[] = [];
  const reading = { signal: new AbortController().signal, note: () => {} };
  for await (const piece of piecesOf(body, reading)) texts.push(new TextDecoder().decode(piece));
  assertEquals(texts, ["one", "two"]);
});
