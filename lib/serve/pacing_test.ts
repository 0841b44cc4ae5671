import { assertEquals, assertLessOrEqual, assertRejects } from "@std/assert";
import type { Clock } from "../kernel/clock.ts";
import { BusyError, Pace, pacedBody, sharedText } from "./pacing.ts";

const NEVER = new AbortController().signal;

/** A text that takes 10 ms to make, on a clock that only it and sleepers move. */
function bench(make: (count: number) => string = (count) => `text ${count}`) {
  const state = { nowMs: 0, made: 0, slept: 0 };
  const clock: Clock = {
    nowMs: () => state.nowMs,
    sleep: (ms) => {
      state.nowMs += ms;
      state.slept += ms;
      return Promise.resolve();
    },
  };
  const text = sharedText(async () => {
    const count = ++state.made;
    await Promise.resolve();
    state.nowMs += 10;
    return make(count);
  }, clock);
  return { state, text };
}

Deno.test("who asks alone has a text of its own, at once", async () => {
  const { state, text } = bench();
  assertEquals(await text(NEVER), "text 1");
  state.nowMs += 40;
  assertEquals(await text(NEVER), "text 2");
  assertEquals(state.slept, 0);
});

Deno.test("who asks together shares one, and who asks while it is made waits for the next one", async () => {
  const { state, text } = bench();
  const first = [text(NEVER), text(NEVER), text(NEVER)];
  while (state.made === 0) await Promise.resolve();
  const later = [text(NEVER), text(NEVER)];
  assertEquals(await Promise.all(first), ["text 1", "text 1", "text 1"]);
  assertEquals(await Promise.all(later), ["text 2", "text 2"]);
});

Deno.test("however often it is asked for, making it takes a fifth of the time", async () => {
  const { state, text } = bench();
  while (state.nowMs < 10_000) await text(NEVER);
  assertEquals(state.made <= 201, true, `made ${state.made} times`);
});

Deno.test("a text that cannot be made fails for those who asked, and not for the next", async () => {
  const { text } = bench((count) => {
    if (count === 1) throw new Error("no");
    return "yes";
  });
  const [one, other] = [text(NEVER), text(NEVER)];
  await Promise.all([assertRejects(() => one, Error, "no"), assertRejects(() => other, Error, "no")]);
  assertEquals(await text(NEVER), "yes");
});

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
  const reader = pacedBody(counted, new Pace({}, RESTLESS), NEVER).getReader();
  await new Promise((resolve) => setTimeout(resolve, 5));
  assertEquals(made, 0);
  assertEquals(await reader.read(), { done: false, value: new Uint8Array([0]) });
  assertEquals(await reader.read(), { done: false, value: new Uint8Array([1]) });
  assertLessOrEqual(made, 3);
  await reader.cancel();
  assertEquals(hasEnded, true);
});

Deno.test("the whole body comes, in order, to each of several readers", async () => {
  const pace = new Pace({}, RESTLESS);
  const bodies = await Promise.all(
    [1, 2, 3].map(() => new Response(pacedBody(bytes(20), pace, NEVER)).bytes()),
  );
  for (const body of bodies) assertEquals([...body], Array.from({ length: 20 }, (_, i) => i));
});

Deno.test("a piece that cannot be made fails its reader and no other", async () => {
  const pace = new Pace({}, RESTLESS);
  const broken = {
    next: (): never => {
      throw new RangeError("no more");
    },
  };
  const failed = new Response(pacedBody(broken, pace, NEVER)).text().catch((error: Error) => error.message);
  const good = new Response(pacedBody(bytes(2), pace, NEVER)).bytes();
  assertEquals([await failed, [...await good]], ["no more", [0, 1]]);
});

Deno.test("after each piece, of any reader, comes a rest as long as it took", async () => {
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
  const pace = new Pace({}, clock);
  const madeAt: number[] = [];
  const make = (tookMs: number) => (): void => {
    madeAt.push(nowMs);
    nowMs += tookMs;
  };
  await Promise.all([pace.take(make(8), NEVER), pace.take(make(2), NEVER), pace.take(make(5), NEVER)]);
  assertEquals(madeAt, [0, 16, 20]);
  assertEquals(rests.slice(0, 2), [8, 2]);
});

const PURE = { permissions: "none" } as const;

/** Time that passes by `work`, and rests that end when the test says so. */
class WorkClock implements Clock {
  readonly rests: { readonly ms: number; readonly end: () => void }[] = [];
  #nowMs = 0;

  work(ms: number): void {
    this.#nowMs += ms;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((end) => void this.rests.push({ ms, end }));
  }
}

Deno.test("one at a time, and after each a rest as long as it took", PURE, async () => {
  const clock = new WorkClock();
  const pace = new Pace({ mostWaiting: 8 }, clock);
  const done: string[] = [];
  const work = (name: string, ms: number) => (): Promise<void> => {
    clock.work(ms);
    done.push(name);
    return Promise.resolve();
  };
  await pace.take(work("a", 30), NEVER);
  const second = pace.take(work("b", 5), NEVER);
  await new Promise((resolve) => setTimeout(resolve, 0));
  assertEquals([done, clock.rests.map(({ ms }) => ms)], [["a"], [30]]);
  clock.rests[0]?.end();
  await second;
  assertEquals([done, clock.rests.map(({ ms }) => ms)], [["a", "b"], [30]]);
});

Deno.test("work that fails gives way to the next", PURE, async () => {
  const clock = new WorkClock();
  const pace = new Pace({ mostWaiting: 8 }, clock);
  await assertRejects(() => pace.take(() => Promise.reject(new RangeError("no")), NEVER), RangeError);
  clock.rests[0]?.end();
  assertEquals(await pace.take(() => Promise.resolve(7), NEVER), 7);
});

Deno.test("a client that asks when eight wait is refused, and later is not", PURE, async () => {
  const clock = new WorkClock();
  const pace = new Pace({ mostWaiting: 8 }, clock);
  const first = Promise.withResolvers<number>();
  const waiting = Array.from({ length: 8 }, () => pace.take(() => first.promise, NEVER));
  await assertRejects(() => pace.take(() => Promise.resolve(1), NEVER), BusyError);
  first.resolve(3);
  for (const one of waiting) {
    assertEquals(await one, 3);
    clock.rests.at(-1)?.end();
  }
  assertEquals(await pace.take(() => Promise.resolve(1), NEVER), 1);
});
