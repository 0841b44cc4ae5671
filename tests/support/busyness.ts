/**
 * Time limits that also hold on a busy machine.
 *
 * @module
 */
import { assert } from "@std/assert";

/** Longest start of the runtime on a quiet machine. */
const START_MS = 150;
const STARTS = 5;

/** Factor by which a program starts slower here and now than on a quiet machine; at least 1. */
export async function busyness(): Promise<number> {
  const startMs = performance.now();
  for (let i = 0; i < STARTS; i++) await new Deno.Command(Deno.execPath(), { args: ["eval", "0"] }).output();
  return Math.max(1, (performance.now() - startMs) / (STARTS * START_MS));
}

/**
 * Asserts a time limit, about three times the duration on a quiet machine; it grows with the machine's load, which is only measured
 * if needed.
 *
 * @param before load before the work, by {@linkcode busyness}
 * @throws {AssertionError} if the work took longer than `limitMs` times the factor by which the machine is slower now
 */
export async function assertWithin(tookMs: number, limitMs: number, what: string, before = 1): Promise<void> {
  if (tookMs <= limitMs) return;
  const times = Math.max(before, await busyness());
  assert(
    tookMs <= limitMs * times,
    `${what}: ${tookMs.toFixed(0)} ms, on a machine that is ${times.toFixed(1)} times as slow as a quiet one`,
  );
}
