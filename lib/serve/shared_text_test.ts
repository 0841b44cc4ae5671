import { assertEquals, assertRejects } from "@std/assert";
import type { Clock } from "../kernel/clock.ts";
import { SharedText } from "./shared_text.ts";

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
  const text = new SharedText(async () => {
    const count = ++state.made;
    await Promise.resolve();
    state.nowMs += 10;
    return make(count);
  }, clock);
  return { state, text };
}

Deno.test("who asks alone has a text of its own, at once", async () => {
  const { state, text } = bench();
  assertEquals(await text.next(NEVER), "text 1");
  state.nowMs += 40;
  assertEquals(await text.next(NEVER), "text 2");
  assertEquals(state.slept, 0);
});

Deno.test("who asks together shares one, and who asks while it is made waits for the next one", async () => {
  const { state, text } = bench();
  const first = [text.next(NEVER), text.next(NEVER), text.next(NEVER)];
  while (state.made === 0) await Promise.resolve();
  const later = [text.next(NEVER), text.next(NEVER)];
  assertEquals(await Promise.all(first), ["text 1", "text 1", "text 1"]);
  assertEquals(await Promise.all(later), ["text 2", "text 2"]);
});

Deno.test("however often it is asked for, making it takes a fifth of the time", async () => {
  const { state, text } = bench();
  while (state.nowMs < 10_000) await text.next(NEVER);
  assertEquals(state.made <= 201, true, `made ${state.made} times`);
});

Deno.test("a text that cannot be made fails for those who asked, and not for the next", async () => {
  const { text } = bench((count) => {
    if (count === 1) throw new Error("no");
    return "yes";
  });
  const [one, other] = [text.next(NEVER), text.next(NEVER)];
  await Promise.all([assertRejects(() => one, Error, "no"), assertRejects(() => other, Error, "no")]);
  assertEquals(await text.next(NEVER), "yes");
});
