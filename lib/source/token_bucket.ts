/**
 * Limits requests to so many per second, with bursts.
 *
 * @module
 */

/** Settings of a {@linkcode TokenBucket}. */
export interface TokenBucketOptions {
  /** Tokens added per second; negative for no limit. */
  readonly perSecond: number;
  /** Tokens it holds at most, and at the start. */
  readonly burst: number;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** A token bucket as client-go's: `clientConnection.qps` and `.burst`. */
export class TokenBucket {
  readonly #options: TokenBucketOptions;
  #tokens: number;
  #updatedMs: number;

  constructor(options: TokenBucketOptions) {
    this.#options = options;
    this.#tokens = options.burst;
    this.#updatedMs = options.nowMs();
  }

  /** Resolves when a token was taken. @throws what `signal` was aborted with */
  async take(signal: AbortSignal): Promise<void> {
    const { perSecond, burst, nowMs } = this.#options;
    if (perSecond < 0) return;
    const now = nowMs();
    this.#tokens = Math.min(burst, this.#tokens + (now - this.#updatedMs) / 1000 * perSecond);
    this.#updatedMs = now;
    // Taken before waiting, so that those who come later wait longer.
    this.#tokens -= 1;
    if (this.#tokens >= 0) return;
    await sleep(-this.#tokens / perSecond * 1000, signal);
  }
}

/** Resolves after `ms`. @throws what `signal` was aborted with */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
