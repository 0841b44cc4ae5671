import { assertEquals, assertRejects } from "@std/assert";
import type { Clock } from "../../kernel/clock.ts";
import { TokenBucket } from "./kube_client.ts";

/** Sleeps take no time; they are noted. */
function fakeClock(): Clock & { nowAtMs: number; sleeps: number[] } {
  return {
    nowAtMs: 0,
    sleeps: [],
    nowMs() {
      return this.nowAtMs;
    },
    sleep(ms) {
      this.sleeps.push(ms);
      return Promise.resolve();
    },
  };
}

Deno.test("a burst passes at once, what follows waits its turn", { permissions: "none" }, async () => {
  const clock = fakeClock();
  const bucket = new TokenBucket(5, 2, clock);
  const { signal } = new AbortController();
  for (let i = 0; i < 4; i++) await bucket.take(signal);
  assertEquals(clock.sleeps, [200, 400]);
  clock.nowAtMs = 10_000;
  for (let i = 0; i < 3; i++) await bucket.take(signal);
  assertEquals(clock.sleeps, [200, 400, 200]);
});

Deno.test("0 and less mean no limit", { permissions: "none" }, async () => {
  for (const perSecond of [0, -1]) {
    const clock = fakeClock();
    const bucket = new TokenBucket(perSecond, 1, clock);
    for (let i = 0; i < 5; i++) await bucket.take(new AbortController().signal);
    assertEquals(clock.sleeps, []);
  }
});

Deno.test("who is stopped takes nothing", { permissions: "none" }, async () => {
  const bucket = new TokenBucket(1, 1, fakeClock());
  await assertRejects(() => bucket.take(AbortSignal.abort(new RangeError("stop"))), RangeError);
});
