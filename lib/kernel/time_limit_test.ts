import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { generousLimitMs, listLimitMs, TimeLimit } from "./time_limit.ts";

/** What becomes of a limit after so many seconds, with so many bytes of input. */
const CASES: readonly [fixedMs: number | undefined, bytes: number, seconds: number, exceeded: boolean][] = [
  [50, 0, 0.04, false],
  [50, 0, 0.06, true],
  [50, 50_000_000, 0.06, true],
  [undefined, 0, 119, false],
  [undefined, 0, 121, true],
  // The rules of 44,000 Services.
  [undefined, 50_000_000, 20 * 60, false],
  [undefined, 50_000_000, 28 * 60, true],
];
for (const [fixedMs, bytes, seconds, exceeded] of CASES) {
  Deno.test(`a limit of ${fixedMs ?? "its own"} ms, ${bytes} bytes of input, after ${seconds} s`, {
    permissions: "none",
  }, () => {
    using time = new FakeTime();
    let calls = 0;
    const limit = new TimeLimit(fixedMs, () => calls++);
    for (const part of [bytes / 2, bytes / 2]) limit.extend(part);
    time.tick(seconds * 1000);
    assertEquals([calls, limit.exceededMs !== null], [exceeded ? 1 : 0, exceeded]);
    limit.stop();
  });
}

Deno.test("a limit that was exceeded is not extended, one that ended in time is not exceeded", {
  permissions: "none",
}, () => {
  using time = new FakeTime();
  let calls = 0;
  const late = new TimeLimit(undefined, () => calls++);
  time.tick(generousLimitMs(0));
  late.extend(1_000_000);
  time.tick(60 * 60_000);
  assertEquals([calls, late.exceededMs], [1, generousLimitMs(0)]);
  const inTime = new TimeLimit(20, () => calls++);
  inTime.stop();
  time.tick(60 * 60_000);
  assertEquals([calls, inTime.exceededMs], [1, null]);
});

Deno.test(
  "a list of 1,000,000 elements, 91 s on a quiet machine, may take ten times that, and a short one what any program may",
  {
    permissions: "none",
  },
  () => {
    assertEquals(listLimitMs(1_000_000) > 10 * 91_000, true);
    assertEquals(listLimitMs(0), generousLimitMs(0));
  },
);
