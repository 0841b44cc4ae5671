import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { FakeTime, TimeError } from "@std/testing/time";

Deno.test(
  "FakeTime runs timers in due order, then in the order they were set",
  { permissions: "none" },
  () => {
    using time = new FakeTime(1000);
    const seen: string[] = [];
    setTimeout(() => seen.push(`late ${Date.now()}`), 20);
    setTimeout((word: string) => seen.push(`${word} ${Date.now()}`), 10, "early");
    setTimeout(() => seen.push("early too"), 10);
    const cleared = setTimeout(() => seen.push("cleared"), 5);
    clearTimeout(cleared);
    time.tick(9);
    assertEquals(seen, []);
    time.tick(11);
    assertEquals(seen, ["early 1010", "early too", "late 1020"]);
  },
);

Deno.test("FakeTime repeats intervals until they are cleared", { permissions: "none" }, () => {
  using time = new FakeTime(0);
  let count = 0;
  const id = setInterval(() => count++, 100);
  time.tick(350);
  assertEquals(count, 3);
  clearInterval(id);
  time.tick(1000);
  assertEquals([count, time.now, time.next()], [3, 1350, false]);
});

Deno.test("FakeTime lets promises run between timers", { permissions: "none" }, async () => {
  using time = new FakeTime(0);
  const seen: number[] = [];
  const loop = (async () => {
    for (let round = 0; round < 3; round++) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      seen.push(Date.now());
    }
  })();
  await time.runAllAsync();
  await loop;
  assertEquals(seen, [1000, 2000, 3000]);
});

Deno.test("FakeTime fakes new Date, Date() and AbortSignal.timeout, and restores them", {
  permissions: "none",
}, () => {
  const realTimeout = setTimeout;
  const time = new FakeTime("2026-01-01T00:00:00Z");
  const signal = AbortSignal.timeout(50);
  assertEquals(new Date().toISOString(), "2026-01-01T00:00:00.000Z");
  assertEquals(new Date(0).toISOString(), "1970-01-01T00:00:00.000Z");
  assertEquals(new Date() instanceof Date, true);
  time.tick(50);
  assertEquals([signal.aborted, signal.reason.name], [true, "TimeoutError"]);
  time.restore();
  assertEquals(setTimeout, realTimeout);
  assertEquals(Math.abs(Date.now() - new Date().valueOf()) < 1000, true);
  assertThrows(() => time.restore(), TimeError);
});

Deno.test("FakeTime refuses to go back and to be nested", { permissions: "none" }, async () => {
  using time = new FakeTime(5000);
  assertThrows(() => time.now = 4000, Error, "in the past");
  assertThrows(() => new FakeTime(), TimeError);
  const aborted = AbortSignal.abort(new Error("given up"));
  await assertRejects(() => time.delay(1000, { signal: aborted }), Error, "given up");
  const elapsed = await FakeTime.restoreFor(() =>
    new Promise((resolve) => setTimeout(() => resolve("real"), 1))
  );
  assertEquals([elapsed, Date.now()], ["real", 5000]);
});
