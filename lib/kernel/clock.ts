/**
 * Time, which tests can control; limits of waiting, yielding to others, and one piece of work at a time.
 *
 * @module
 */

/** A source of time. */
export interface Clock {
  /** Milliseconds, monotonic; only differences mean something. */
  nowMs(): number;
  /** Resolves after this many milliseconds, or at once when `signal` is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The machine's own clock. */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  sleep(ms, signal) {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal?.addEventListener("abort", end);
    });
  },
};

/**
 * A clock with fractions from one that has whole milliseconds only: the monotonic one has them, but it stands still while the machine
 * sleeps, and it does not learn that the machine's clock was set. Where the two are further apart than that, the first one is right.
 *
 * @param epochMs whole milliseconds since the epoch
 */
export function fineWallClock(epochMs: () => number, monotonicMs: () => number): () => number {
  let sinceMs = NaN;
  return () => {
    const [wholeMs, nowMs] = [epochMs(), monotonicMs()];
    const isOff = !(Math.abs(sinceMs + nowMs - wholeMs) <= 1);
    if (isOff) sinceMs = wholeMs - nowMs;
    return sinceMs + nowMs;
  };
}

/** Now, in milliseconds since the epoch, with fractions. */
export const wallClockMs: () => number = fineWallClock(() => Date.now(), () => performance.now());

/**
 * What `promise` resolves to; null after so many milliseconds, or once `signal` aborts. It cannot end the work itself.
 *
 * @throws what `promise` rejects with before
 */
export async function within<T>(promise: Promise<T>, ms: number, signal?: AbortSignal): Promise<T | null> {
  const { promise: late, resolve } = Promise.withResolvers<null>();
  const giveUp = (): void => resolve(null);
  if (signal?.aborted) giveUp();
  const timer = setTimeout(giveUp, Math.max(0, ms));
  signal?.addEventListener("abort", giveUp);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", giveUp);
  }
}

/**
 * What `promise` resolves to, unless `signal` aborts before: a disk that hangs cannot be interrupted, only left.
 *
 * @throws what `promise` rejects with, or the reason of `signal`
 */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Runs what it is given in the order of the calls, never two at once. A failure does not stop the next. */
export class Mutex {
  #tail: Promise<unknown> = Promise.resolve();

  /** Runs `work` once everything given before has ended, and settles as it does. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    // The caller gets the failure from `result`; the queue itself only waits.
    this.#tail = result.then(() => undefined, () => undefined);
    return result;
  }
}

/** Yields: timers and I/O events have their turn, which the runtime looks for when it has nothing to do at once. */
export function yieldToOthers(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

/** How long a long task may run before it yields: probes ask for an answer within a second. */
export const TURN_MS = 40;

/** Options of work in turns. */
export interface Turns {
  /** Milliseconds that it goes on until everything else has its turn. @default {0} */
  readonly turnMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * Goes through the steps of some work, and yields to everything else in between.
 *
 * @throws the reason of `signal` once that aborts
 */
export async function inTurns<T>(steps: Iterator<void, T>, { turnMs = 0, signal }: Turns = {}): Promise<T> {
  let sinceMs = performance.now();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (performance.now() - sinceMs < turnMs) continue;
    await yieldToOthers();
    signal?.throwIfAborted();
    sinceMs = performance.now();
  }
}
