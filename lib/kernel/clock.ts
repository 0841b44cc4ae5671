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

/** Now, in milliseconds since the epoch, with fractions. */
export function wallClockMs(): number {
  return performance.timeOrigin + performance.now();
}
