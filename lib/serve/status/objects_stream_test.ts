import { assertEquals, assertLessOrEqual } from "@std/assert";
import type { Clock } from "../../kernel/clock.ts";
import { pacedBody, PiecePace } from "./objects_stream.ts";

const NEVER = new AbortController().signal;
const RESTLESS: Clock = { nowMs: () => 0, sleep: () => Promise.resolve() };

function* bytes(count: number, onEnd: () => void = () => {}): Generator<Uint8Array<ArrayBuffer>> {
  try {
    for (let i = 0; i < count; i++) yield new Uint8Array([i]);
  } finally {
    onEnd();
  }
}

Deno.test("nothing is made before it is read, and nothing after the reader has gone", async () => {
  let made = 0;
  let hasEnded = false;
  const pieces = bytes(10, () => {
    hasEnded = true;
  });
  const counted = {
    next: () => {
      made++;
      return pieces.next();
    },
    return: (value: undefined) => pieces.return(value),
  };
  const reader = pacedBody(counted, new PiecePace(RESTLESS), NEVER).getReader();
  await new Promise((resolve) => setTimeout(resolve, 5));
  assertEquals(made, 0);
  assertEquals(await reader.read(), { done: false, value: new Uint8Array([0]) });
  assertEquals(await reader.read(), { done: false, value: new Uint8Array([1]) });
  assertLessOrEqual(made, 3);
  await reader.cancel();
  assertEquals(hasEnded, true);
});

Deno.test("the whole body comes, in order, to each of several readers", async () => {
  const pace = new PiecePace(RESTLESS);
  const bodies = await Promise.all(
    [1, 2, 3].map(() => new Response(pacedBody(bytes(20), pace, NEVER)).bytes()),
  );
  for (const body of bodies) assertEquals([...body], Array.from({ length: 20 }, (_, i) => i));
});

Deno.test("a piece that cannot be made fails its reader and nobody else", async () => {
  const pace = new PiecePace(RESTLESS);
  const broken = {
    next: (): never => {
      throw new RangeError("no more");
    },
  };
  const failed = new Response(pacedBody(broken, pace, NEVER)).text().catch((error: Error) => error.message);
  const good = new Response(pacedBody(bytes(2), pace, NEVER)).bytes();
  assertEquals([await failed, [...await good]], ["no more", [0, 1]]);
});

Deno.test("after each piece, whoever reads, comes a rest as long as it took", async () => {
  let nowMs = 0;
  const rests: number[] = [];
  const clock: Clock = {
    nowMs: () => nowMs,
    sleep: (ms) => {
      rests.push(ms);
      nowMs += ms;
      return Promise.resolve();
    },
  };
  const pace = new PiecePace(clock);
  const madeAt: number[] = [];
  const make = (tookMs: number) => (): void => {
    madeAt.push(nowMs);
    nowMs += tookMs;
  };
  await Promise.all([pace.take(make(8), NEVER), pace.take(make(2), NEVER), pace.take(make(5), NEVER)]);
  assertEquals(madeAt, [0, 16, 20]);
  assertEquals(rests.slice(0, 2), [8, 2]);
});
