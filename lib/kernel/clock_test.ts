import { assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { fineWallClock, inTurns, within } from "./clock.ts";

Deno.test("a promise is waited for so long and no longer, and not beyond an abort", {
  permissions: "none",
}, async () => {
  using time = new FakeTime();
  const { promise, resolve } = Promise.withResolvers<string>();
  const [soon, late] = [within(promise, 100), within(promise, 99)];
  const aborted = new AbortController();
  const left = within(promise, 100, aborted.signal);
  aborted.abort();
  assertEquals(await left, null);
  assertEquals(await within(promise, 100, aborted.signal), null);
  time.tick(99);
  resolve("there");
  assertEquals([await soon, await late], ["there", null]);
  const failed = within(Promise.reject(new Error("broken")), 100);
  await assertRejects(() => failed, Error, "broken");
});

Deno.test(
  "the wall clock has fractions, and follows the machine's when it is set, forward or back, and after a sleep",
  {
    permissions: "none",
  },
  () => {
    let [epochMs, monotonicMs] = [1_000_000.25, 40.5];
    const now = fineWallClock(() => Math.floor(epochMs), () => monotonicMs);
    const pass = (byClockMs: number, byStopwatchMs = byClockMs): number => {
      epochMs += byClockMs;
      monotonicMs += byStopwatchMs;
      return now() - epochMs;
    };
    const isRight = (offMs: number): boolean => Math.abs(offMs) <= 1;
    assertEquals([0, 0.5, 0.5, 3_600_000].map((ms) => isRight(pass(ms))), [true, true, true, true]);
    const before = now();
    pass(0.25);
    assertEquals(now() - before, 0.25);
    // Eight hours of sleep, NTP's first word after a boot in 1970, and a clock that was an hour ahead.
    assertEquals(isRight(pass(8 * 3_600_000, 0)), true);
    assertEquals(isRight(pass(56 * 365 * 86_400_000, 10)), true);
    assertEquals(isRight(pass(-3_600_000, 10)), true);
    assertEquals(isRight(pass(60_000)), true);
  },
);

/** Says each of its steps. */
function* steps(count: number, said: string[]): Generator<void, string> {
  for (let step = 1; step <= count; step++) {
    said.push(`step ${step}`);
    yield;
  }
  return "done";
}

Deno.test("between steps everything else has its turn, and after an abort nothing goes on", {
  permissions: "none",
}, async () => {
  const said: string[] = [];
  setTimeout(() => said.push("other"));
  assertEquals(await inTurns(steps(2, said)), "done");
  assertEquals(said, ["step 1", "other", "step 2"]);
  said.length = 0;
  setTimeout(() => said.push("other"));
  assertEquals(await inTurns(steps(2, said), { turnMs: 60_000 }), "done");
  assertEquals(said, ["step 1", "step 2"]);
  const end = new AbortController();
  setTimeout(() => end.abort(new Error("over")));
  await assertRejects(() => inTurns(steps(9, said), { signal: end.signal }), Error, "over");
  assertEquals(said, ["step 1", "step 2", "step 1", "other"]);
});
