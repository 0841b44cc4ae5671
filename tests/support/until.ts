/**
 * Waiting in tests for what comes by itself. Every wait ends: the runner has no limit of time, so that a test that waits for what never
 * comes would keep its process for ever and say nothing.
 *
 * @module
 */
import { AssertionError } from "@std/assert";

/** How a test waits. */
export interface Patience {
  /** Milliseconds between two looks; longer where a look takes longer, so that looks leave half of the time to what they wait for. @default {10} */
  readonly everyMs?: number;
  /** Milliseconds after which it fails; many times what it takes on a busy machine. @default {300_000} */
  readonly limitMs?: number;
}

/**
 * Resolves once something is so.
 *
 * @param what it is, for the message; the condition's own text unless given
 * @throws {AssertionError} if it is not so within the limit
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
 * Repeats a check until it passes, and resolves to what it yields.
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
 * Resolves when everything under way in this process, over loopback too, has had its turns: what it waits for is no time, of which a
 * machine that stands still meanwhile would leave nothing.
 *
 * @param turns how often everything has its turn
 */
export async function settled(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
}
