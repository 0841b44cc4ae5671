import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { backoffMs, Throttle, type ThrottleOptions } from "./throttle.ts";

/** Lets time pass in small steps, so that what an expired timer starts can set timers of its own. */
async function advance(time: FakeTime, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 100) await time.tickAsync(Math.min(100, left));
  await time.runMicrotasks();
}

/** A throttle whose runs note the fake time at which they began. */
function paced(
  time: FakeTime,
  options: Partial<ThrottleOptions> = {},
): { throttle: Throttle; starts: number[] } {
  const starts: number[] = [];
  const zero = time.now;
  const throttle = new Throttle({
    run: () => {
      starts.push(time.now - zero);
      return Promise.resolve();
    },
    minIntervalMs: 1000,
    maxIntervalMs: 3_600_000,
    retryMs: () => 30_000,
    ...options,
  });
  return { throttle, starts };
}

Deno.test("the first request after quiet runs at once, the next waits for the minimum interval", async () => {
  using time = new FakeTime();
  const { throttle, starts } = paced(time);
  throttle.start();
  await advance(time, 5000);
  assertEquals(starts, []);
  throttle.request();
  await advance(time, 400);
  throttle.request();
  throttle.request();
  await advance(time, 599);
  assertEquals(starts, [5000]);
  await advance(time, 1);
  assertEquals(starts, [5000, 6000]);
  await advance(time, 10_000);
  assertEquals(starts, [5000, 6000]);
  await throttle.stop();
});

Deno.test("a request before start is served when it starts", async () => {
  using time = new FakeTime();
  const { throttle, starts } = paced(time);
  throttle.request();
  await advance(time, 100);
  assertEquals(starts, []);
  throttle.start();
  await advance(time, 0);
  assertEquals(starts, [100]);
  await throttle.stop();
});

Deno.test("requests during a run lead to one more, counted from its end, and never to two at a time", async () => {
  using time = new FakeTime();
  let running = 0;
  let most = 0;
  const starts: number[] = [];
  const zero = time.now;
  const { throttle } = paced(time, {
    run: async () => {
      starts.push(time.now - zero);
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 700));
      running--;
    },
  });
  throttle.start();
  throttle.request();
  for (let i = 0; i < 5; i++) {
    await advance(time, 100);
    throttle.request();
  }
  await advance(time, 5000);
  assertEquals(starts, [0, 1700]);
  assertEquals(most, 1);
  await throttle.stop();
});

Deno.test("without requests it runs again after the maximum interval", async () => {
  using time = new FakeTime();
  const { throttle, starts } = paced(time, { maxIntervalMs: 60_000 });
  throttle.start();
  throttle.request();
  await advance(time, 125_000);
  assertEquals(starts, [0, 60_000, 120_000]);
  await throttle.stop();
});

Deno.test("a failure is tried again with growing waits, and an event in between runs sooner", async () => {
  using time = new FakeTime();
  const starts: number[] = [];
  const zero = time.now;
  let failing = true;
  const { throttle } = paced(time, {
    retryMs: (failures) => 2000 * failures,
    run: () => {
      starts.push(time.now - zero);
      return failing ? Promise.reject(new Error("no")) : Promise.resolve();
    },
  });
  throttle.start();
  throttle.request();
  await advance(time, 7000); // 0, then 2000 later, then 4000 later
  assertEquals(starts, [0, 2000, 6000]);
  await advance(time, 500); // 7500: cooled down
  failing = false;
  throttle.request();
  await advance(time, 100_000);
  assertEquals(starts, [0, 2000, 6000, 7500]);
  await throttle.stop();
});

Deno.test("a minimum interval above the maximum is capped", async () => {
  using time = new FakeTime();
  const { throttle, starts } = paced(time, { minIntervalMs: 10_000, maxIntervalMs: 2000 });
  throttle.start();
  throttle.request();
  await advance(time, 4500);
  assertEquals(starts, [0, 2000, 4000]);
  await throttle.stop();
});

Deno.test("stop waits for the run under way and starts no other", async () => {
  using time = new FakeTime();
  let done = false;
  const { throttle, starts } = paced(time, {
    run: async () => {
      starts.push(0);
      await new Promise((resolve) => setTimeout(resolve, 500));
      done = true;
    },
  });
  throttle.start();
  throttle.request();
  throttle.request();
  const stopped = throttle.stop();
  await advance(time, 500);
  await stopped;
  assertEquals(done, true);
  throttle.request();
  await advance(time, 5000);
  assertEquals(starts.length, 1);
});

Deno.test("backoffMs() doubles, is capped and adds up to a fifth", { permissions: "none" }, () => {
  const waits = [1, 2, 3, 4, 9].map((n) => backoffMs(n, { initialMs: 1000, maxMs: 6000, random: () => 0 }));
  assertEquals(waits, [1000, 2000, 4000, 6000, 6000]);
  assertEquals(backoffMs(1, { initialMs: 1000, maxMs: 6000, random: () => 0.5 }), 1100);
});
