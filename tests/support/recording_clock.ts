/**
 * A clock for which no time passes.
 *
 * @module
 */
import type { Clock } from "../../lib/kernel/clock.ts";

/** Every wait is over at once; `waits` tells how long they were to be, in milliseconds. */
export function recordingClock(): Clock & { readonly waits: readonly number[] } {
  const waits: number[] = [];
  return {
    waits,
    nowMs: () => 0,
    sleep: (ms) => {
      waits.push(ms);
      return Promise.resolve();
    },
  };
}
