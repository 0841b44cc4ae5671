/**
 * Limits of time that hold on a machine with other work, too.
 *
 * @module
 */
import { assert } from "@std/assert";

/** No quiet machine needs longer to start the runtime. */
const START_MS = 150;
const STARTS = 5;

/** How many times longer than on a quiet machine the start of a program takes here and now; 1 at least. */
export async function busyness(): Promise<number> {
  const startMs = performance.now();
  for (let i = 0; i < STARTS; i++) await new Deno.Command(Deno.execPath(), { args: ["eval", "0"] }).output();
  return Math.max(1, (performance.now() - startMs) / (STARTS * START_MS));
}

/**
 * Holds a limit against what something took, about three times what it takes on a quiet machine; how busy this one is counts, and is only
 * looked at if it must be.
 *
 * @param before how busy it was before
 * @throws {AssertionError} if it took longer than `limitMs`, and longer than so many times that as the machine is slower now
 */
export async function assertWithin(tookMs: number, limitMs: number, what: string, before = 1): Promise<void> {
  if (tookMs <= limitMs) return;
  const times = Math.max(before, await busyness());
  assert(
    tookMs <= limitMs * times,
    `${what}: ${tookMs.toFixed(0)} ms, on a machine that is ${times.toFixed(1)} times as slow as a quiet one`,
  );
}
