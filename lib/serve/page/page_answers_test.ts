import { assertEquals, assertRejects } from "@std/assert";
import type { Clock } from "../../kernel/clock.ts";
import { BusyError, Turns } from "./page_answers.ts";

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

const NEVER = new AbortController().signal;

Deno.test("one at a time, and after each a rest as long as it took", PURE, async () => {
  const clock = new WorkClock();
  const turns = new Turns(clock);
  const done: string[] = [];
  const work = (name: string, ms: number) => (): Promise<void> => {
    clock.work(ms);
    done.push(name);
    return Promise.resolve();
  };
  await turns.take(work("a", 30), NEVER);
  const second = turns.take(work("b", 5), NEVER);
  await new Promise((resolve) => setTimeout(resolve, 0));
  assertEquals([done, clock.rests.map(({ ms }) => ms)], [["a"], [30]]);
  clock.rests[0]?.end();
  await second;
  assertEquals([done, clock.rests.map(({ ms }) => ms)], [["a", "b"], [30, 5]]);
});

Deno.test("work that fails gives way to the next", PURE, async () => {
  const clock = new WorkClock();
  const turns = new Turns(clock);
  await assertRejects(() => turns.take(() => Promise.reject(new RangeError("no")), NEVER), RangeError);
  clock.rests[0]?.end();
  assertEquals(await turns.take(() => Promise.resolve(7), NEVER), 7);
});

Deno.test("whoever comes when eight wait is sent away, and later is not", PURE, async () => {
  const clock = new WorkClock();
  const turns = new Turns(clock);
  const first = Promise.withResolvers<number>();
  const waiting = Array.from({ length: 8 }, () => turns.take(() => first.promise, NEVER));
  await assertRejects(() => turns.take(() => Promise.resolve(1), NEVER), BusyError);
  first.resolve(3);
  for (const one of waiting) {
    assertEquals(await one, 3);
    clock.rests.at(-1)?.end();
  }
  assertEquals(await turns.take(() => Promise.resolve(1), NEVER), 1);
});
