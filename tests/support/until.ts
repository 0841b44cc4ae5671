/**
 * Waits of tests for events that come by themselves. Every wait has a limit: the runner has none, so a test that waits for what never
 * comes would keep its process for ever and report nothing.
 *
 * @module
 */
import { AssertionError } from "@std/assert";

/** Interval and limit of a wait. */
export interface Patience {
  /** Milliseconds between two checks; longer if a check takes longer, so that checks leave half of the time to the tested code. @default {10} */
  readonly everyMs?: number;
  /** Milliseconds after which the wait fails; many times what a busy machine needs. @default {300_000} */
  readonly limitMs?: number;
}

/**
 * Resolves once the condition holds.
 *
 * @param what it waits for, in the message; by default the condition's source text
 * @throws {AssertionError} if the condition does not hold within the limit
 */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  what: string = isSo.toString(),
  patience: Patience = {},
): Promise<void> {
  await eventually(async () => {
    if (!await isSo()) throw new AssertionError(`It did not come to this: ${what}`);
  }, patience);
}

/**
 * Repeats a check until it passes, and resolves to its result.
 *
 * @throws {AssertionError} the last one of the check, if it does not pass within the limit
 * @throws whatever else the check throws, at once
 */
export async function eventually<T>(
  check: () => T | Promise<T>,
  { everyMs = 10, limitMs = 300_000 }: Patience = {},
): Promise<T> {
  const deadlineMs = performance.now() + limitMs;
  for (;;) {
    const lookMs = performance.now();
    try {
      return await check();
    } catch (error) {
      if (!(error instanceof AssertionError) || performance.now() > deadlineMs) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(everyMs, performance.now() - lookMs)));
  }
}

/**
 * Resolves when all pending work of this process, over loopback too, has had its turns: it does not wait for time, which a
 * stalled machine would use up.
 *
 * @param turns number of turns for all pending work
 */
export async function settled(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
}
