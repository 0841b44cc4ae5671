/**
 * A clock on which no time passes.
 *
 * @module
 */
import type { Clock } from "../../lib/kernel/clock.ts";

/** All waits end at once; `waits` has their lengths, in milliseconds. */
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
