import { assertEquals } from "@std/assert";
import { IdleLimit, piecesOf } from "./response.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";

/** A body that fills the reader's memory with pieces of these lengths, each filled with its own number. */
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

const NEVER = new AbortController().signal;

function clockOf(): ManualClock {
  return new ManualClock({ requestMs: -1 });
}

Deno.test("silence ends at its limit, signs put it off, and a drip does not go on for ever", async () => {
  for (
    const [signMs, endMs, message] of [
      [Infinity, 60_000, "Nothing arrived from x for 60 s"],
      [50_000, 600_000, "What arrives from x is not complete after 600 s"],
      [20_000, 600_000, "What arrives from x is not complete after 600 s"],
    ] as const
  ) {
    const clock = clockOf();
    using limit = new IdleLimit({ idleMs: 60_000, wholeMs: 600_000 }, "x", NEVER, clock);
    let endedMs = 0;
    limit.signal.addEventListener("abort", () => endedMs = clock.nowMs());
    while (endedMs === 0 && clock.nowMs() < 700_000) {
      await clock.pass(Math.min(signMs, 60_000));
      if (signMs < 60_000) limit.note();
    }
    assertEquals([endedMs, limit.error?.message], [endMs, message]);
  }
});

Deno.test("other times count from when they are set, and the signal goes on following the one it was given", async () => {
  const clock = clockOf();
  const outer = new AbortController();
  using limit = new IdleLimit({ idleMs: 1_000 }, "x", outer.signal, clock);
  await clock.pass(900);
  limit.changeTo({ idleMs: 10_000 });
  await clock.pass(9_900);
  assertEquals([limit.signal.aborted, limit.error], [false, undefined]);
  outer.abort(new Error("over"));
  assertEquals([limit.signal.aborted, (limit.signal.reason as Error).message], [true, "over"]);
});
