/**
 * When a drift check lists everything: at each look while that is cheap, once an hour where it is not.
 *
 * @module
 */

/** A list that takes longer, in milliseconds, is not cheap, however little of it is ours. */
const SLOW_MS = 600;
/** How long there is no other list of everything where that is not cheap. */
const RARE_MS = 3_600_000;

/** A look that has ended. */
export interface Look {
  /** Everything was listed. */
  readonly isAll: boolean;
  /** There is so much that to list it is not cheap. */
  readonly isLarge: boolean;
  readonly isDamaged: boolean;
  /** Milliseconds, monotonic. */
  readonly startMs: number;
  readonly endMs: number;
}

/** Of one family. */
export class FullLooks {
  #dueMs = Number.NEGATIVE_INFINITY;
  /** The last look at everything has begun and not ended. */
  #hasFailed = false;

  /** True if the next look is at everything. */
  isDue(nowMs: number): boolean {
    return nowMs >= this.#dueMs;
  }

  /** Of a look that begins now. @returns true if it is at everything */
  begin(nowMs: number): boolean {
    const isAll = this.isDue(nowMs);
    // Those that do not come to their end must not be all that the machine does from now on; a single one says little.
    if (isAll && this.#hasFailed) this.#dueMs = nowMs + RARE_MS;
    this.#hasFailed = isAll;
    return isAll;
  }

  ended({ isAll, isLarge, isDamaged, startMs, endMs }: Look): void {
    this.#hasFailed = false;
    if (isAll) this.#dueMs = isLarge || endMs - startMs > SLOW_MS ? startMs + RARE_MS : endMs;
    // After damage the next look, which tells whether the repair helped, is at everything.
    if (isDamaged) this.#dueMs = endMs;
  }
}
