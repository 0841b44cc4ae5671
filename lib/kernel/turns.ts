/**
 * Giving way while there is much to do.
 *
 * @module
 */

/** Lets all others go on, be it that something has come for them: the runtime looks for that when it has nothing to do at once. */
export function everybodysTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

/** How long a long task may run before it yields: probes ask for an answer within a second. */
export const TURN_MS = 40;

/** Lets all others go on if the work since then has taken long enough. */
export async function turnSince(sinceMs: number): Promise<void> {
  if (performance.now() - sinceMs >= TURN_MS) await everybodysTurn();
}

/** How work in turns is done. */
export interface Turns {
  /** How long it goes on until everything else has its turn. @default {0} */
  readonly turnMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * Goes through the steps of some work without keeping anybody else from theirs.
 *
 * @throws the reason of `signal` once that aborts
 */
export async function inTurns<T>(steps: Iterator<void, T>, { turnMs = 0, signal }: Turns = {}): Promise<T> {
  let sinceMs = performance.now();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (performance.now() - sinceMs < turnMs) continue;
    await everybodysTurn();
    signal?.throwIfAborted();
    sinceMs = performance.now();
  }
}
