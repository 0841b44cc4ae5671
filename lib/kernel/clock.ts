/**
 * Time as the kernel layer sees it, so that tests can hold it.
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
 * A clock with fractions from one that has whole milliseconds only: the monotonic one tells them, but it stands still while the machine
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
 * What `promise` resolves to; null after so many milliseconds, or once `signal` aborts. It cannot end what `promise` stands for.
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
