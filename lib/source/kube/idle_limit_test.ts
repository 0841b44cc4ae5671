import { assertEquals } from "@std/assert";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import { IdleLimit } from "./response.ts";

const NEVER = new AbortController().signal;

function clockOf(): ManualClock {
  return new ManualClock({ requestMs: -1 });
}

Deno.test("silence ends at its limit, signs put it off, and a drip does not go on for ever", async () => {
  for (
    const [signMs, endMs, message] of [
      [Infinity, 60_000, "Nothing arrived from x for 60 s"],
      [50_000, 600_000, "What arrives from x is not complete after 600 s"],
      [20_000, 600_000, "What arrives from x is not complete after 600 s"],
    ] as const
  ) {
    const clock = clockOf();
    using limit = new IdleLimit({ idleMs: 60_000, wholeMs: 600_000 }, "x", NEVER, clock);
    let endedMs = 0;
    limit.signal.addEventListener("abort", () => endedMs = clock.nowMs());
    while (endedMs === 0 && clock.nowMs() < 700_000) {
      await clock.pass(Math.min(signMs, 60_000));
      if (signMs < 60_000) limit.note();
    }
    assertEquals([endedMs, limit.error?.message], [endMs, message]);
  }
});

Deno.test("other times count from when they are set, and the signal goes on following the one it was given", async () => {
  const clock = clockOf();
  const outer = new AbortController();
  using limit = new IdleLimit(1_000, "x", outer.signal, clock);
  await clock.pass(900);
  limit.changeTo(10_000);
  await clock.pass(9_900);
  assertEquals([limit.signal.aborted, limit.error], [false, undefined]);
  outer.abort(new Error("over"));
  assertEquals([limit.signal.aborted, (limit.signal.reason as Error).message], [true, "over"]);
});
