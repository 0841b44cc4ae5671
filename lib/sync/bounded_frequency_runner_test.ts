import { assert, assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import {
  backoffMs,
  BoundedFrequencyRunner,
  type BoundedFrequencyRunnerOptions,
} from "./bounded_frequency_runner.ts";

/** Lets time pass in small steps, so that what an expired timer starts can set timers of its own. */
async function advance(time: FakeTime, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 100) await time.tickAsync(Math.min(100, left));
  await time.runMicrotasks();
}

/** A runner whose runs note the fake time at which they began. */
function paced(
  time: FakeTime,
  options: Partial<BoundedFrequencyRunnerOptions> = {},
): { runner: BoundedFrequencyRunner; starts: number[] } {
  const starts: number[] = [];
  const zero = time.now;
  const runner = new BoundedFrequencyRunner({
    run: () => {
      starts.push(time.now - zero);
      return Promise.resolve(true);
    },
    minIntervalMs: 1000,
    maxIntervalMs: 3_600_000,
    retryMs: () => 30_000,
    ...options,
  });
  return { runner, starts };
}

Deno.test("the first request after quiet runs at once, the next waits for the minimum interval", async () => {
  using time = new FakeTime();
  const { runner, starts } = paced(time);
  runner.start();
  await advance(time, 5000);
  assertEquals(starts, []);
  runner.request();
  await advance(time, 400);
  runner.request();
  runner.request();
  await advance(time, 599);
  assertEquals(starts, [5000]);
  await advance(time, 1);
  assertEquals(starts, [5000, 6000]);
  await advance(time, 10_000);
  assertEquals(starts, [5000, 6000]);
  await runner.stop();
});

Deno.test("a lone request is never delayed, however soon after the minimum interval it comes", async () => {
  using time = new FakeTime();
  const { runner, starts } = paced(time);
  runner.start();
  const asked: number[] = [];
  for (const quietMs of [1, 1000, 1001, 1500, 60_000, 1000]) {
    await advance(time, quietMs);
    runner.request();
    asked.push((asked.at(-1) ?? 0) + quietMs);
    await time.runMicrotasks();
  }
  assertEquals(starts, asked);
  await runner.stop();
});

Deno.test("a burst is delayed by the minimum interval and the runs before it, whatever its rhythm", async () => {
  for (const spacingMs of [0, 3, 20, 90, 333, 999]) {
    using time = new FakeTime();
    const zero = time.now;
    const runMs = 40;
    const starts: number[] = [];
    const { runner } = paced(time, {
      run: async () => {
        starts.push(time.now - zero);
        await new Promise((resolve) => setTimeout(resolve, runMs));
        return true;
      },
    });
    runner.start();
    const asked: number[] = [];
    for (let change = 0; change < 50; change++) {
      asked.push(time.now - zero);
      runner.request();
      await time.tickAsync(spacingMs);
    }
    await advance(time, 5000);
    const delays = asked.map((atMs) => (starts.find((startMs) => startMs >= atMs) ?? Infinity) - atMs);
    assertEquals(delays[0], 0, "the first one waits for nothing");
    const worst = Math.max(...delays);
    assert(worst <= 1000 + runMs, `every ${spacingMs} ms: ${worst} ms`);
    const most = Math.ceil(50 * spacingMs / (1000 + runMs)) + 2;
    assert(starts.length <= most, `every ${spacingMs} ms: ${starts.length} runs`);
    await runner.stop();
  }
});

Deno.test("a run that had nothing to do delays no other", async () => {
  using time = new FakeTime();
  const zero = time.now;
  const starts: number[] = [];
  let hasWork = false;
  const { runner } = paced(time, {
    maxIntervalMs: 60_000,
    run: () => {
      starts.push(time.now - zero);
      return Promise.resolve(hasWork);
    },
  });
  runner.start();
  runner.request();
  await advance(time, 10);
  hasWork = true;
  runner.request();
  await advance(time, 10);
  runner.request();
  await advance(time, 2000);
  assertEquals(starts, [0, 10, 1010]);
  hasWork = false;
  await advance(time, 120_000);
  assertEquals(starts.length, 5, "and it still runs now and then");
  await runner.stop();
});

Deno.test("a request before start is served when it starts", async () => {
  using time = new FakeTime();
  const { runner, starts } = paced(time);
  runner.request();
  await advance(time, 100);
  assertEquals(starts, []);
  runner.start();
  await advance(time, 0);
  assertEquals(starts, [100]);
  await runner.stop();
});

Deno.test("requests during a run lead to one more, counted from its end, and never to two at a time", async () => {
  using time = new FakeTime();
  let running = 0;
  let most = 0;
  const starts: number[] = [];
  const zero = time.now;
  const { runner } = paced(time, {
    run: async () => {
      starts.push(time.now - zero);
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 700));
      running--;
      return true;
    },
  });
  runner.start();
  runner.request();
  for (let i = 0; i < 5; i++) {
    await advance(time, 100);
    runner.request();
  }
  await advance(time, 5000);
  assertEquals(starts, [0, 1700]);
  assertEquals(most, 1);
  await runner.stop();
});

Deno.test("without requests it runs again after the maximum interval", async () => {
  using time = new FakeTime();
  const { runner, starts } = paced(time, { maxIntervalMs: 60_000 });
  runner.start();
  runner.request();
  await advance(time, 125_000);
  assertEquals(starts, [0, 60_000, 120_000]);
  await runner.stop();
});

Deno.test("a failure is tried again with growing waits, and an event in between runs sooner", async () => {
  using time = new FakeTime();
  const starts: number[] = [];
  const zero = time.now;
  let failing = true;
  const { runner } = paced(time, {
    retryMs: (failures) => 2000 * failures,
    run: () => {
      starts.push(time.now - zero);
      return failing ? Promise.reject(new Error("no")) : Promise.resolve(true);
    },
  });
  runner.start();
  runner.request();
  await advance(time, 7000); // 0, then 2000 later, then 4000 later
  assertEquals(starts, [0, 2000, 6000]);
  await advance(time, 500); // 7500: cooled down
  failing = false;
  runner.request();
  await advance(time, 100_000);
  assertEquals(starts, [0, 2000, 6000, 7500]);
  await runner.stop();
});

Deno.test("a minimum interval above the maximum is capped", async () => {
  using time = new FakeTime();
  const { runner, starts } = paced(time, { minIntervalMs: 10_000, maxIntervalMs: 2000 });
  runner.start();
  runner.request();
  await advance(time, 4500);
  assertEquals(starts, [0, 2000, 4000]);
  await runner.stop();
});

Deno.test("stop waits for the run under way and starts no other", async () => {
  using time = new FakeTime();
  let done = false;
  const { runner, starts } = paced(time, {
    run: async () => {
      starts.push(0);
      await new Promise((resolve) => setTimeout(resolve, 500));
      done = true;
      return true;
    },
  });
  runner.start();
  runner.request();
  runner.request();
  const stopped = runner.stop();
  await advance(time, 500);
  await stopped;
  assertEquals(done, true);
  runner.request();
  await advance(time, 5000);
  assertEquals(starts.length, 1);
});

Deno.test("backoffMs() doubles, is capped and adds up to a fifth", { permissions: "none" }, () => {
  const waits = [1, 2, 3, 4, 9].map((n) => backoffMs(n, { initialMs: 1000, maxMs: 6000, random: () => 0 }));
  assertEquals(waits, [1000, 2000, 4000, 6000, 6000]);
  assertEquals(backoffMs(1, { initialMs: 1000, maxMs: 6000, random: () => 0.5 }), 1100);
});
