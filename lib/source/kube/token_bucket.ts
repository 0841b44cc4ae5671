/**
 * Limits requests to so many per second, with bursts.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";

/** Settings of a {@linkcode TokenBucket}. */
export interface TokenBucketOptions {
  /** Tokens added per second; 0 or less for no limit. */
  readonly perSecond: number;
  /** Tokens it holds at most, and at the start. */
  readonly burst: number;
  readonly clock: Clock;
}

/** A token bucket as client-go's: `clientConnection.qps` and `.burst`. */
export class TokenBucket {
  readonly #options: TokenBucketOptions;
  #tokens: number;
  #updatedMs: number;

  constructor(options: TokenBucketOptions) {
    this.#options = options;
    this.#tokens = options.burst;
    this.#updatedMs = options.clock.nowMs();
  }

  /** Resolves when a token was taken. @throws what `signal` was aborted with */
  async take(signal: AbortSignal): Promise<void> {
    const { perSecond, burst, clock } = this.#options;
    signal.throwIfAborted();
    if (perSecond <= 0) return;
    const nowMs = clock.nowMs();
    this.#tokens = Math.min(burst, this.#tokens + (nowMs - this.#updatedMs) / 1000 * perSecond);
    this.#updatedMs = nowMs;
    // Taken before waiting, so that those who come later wait longer.
    this.#tokens -= 1;
    if (this.#tokens >= 0) return;
    await clock.sleep(-this.#tokens / perSecond * 1000, signal);
    signal.throwIfAborted();
  }
}
