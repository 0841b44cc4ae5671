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

  /** True if the look that begins now is at everything. */
  isDue(nowMs: number): boolean {
    return nowMs >= this.#dueMs;
  }

  /** The next one is at the earliest in an hour, whatever becomes of the one that begins now. */
  putOff(nowMs: number): void {
    this.#dueMs = nowMs + RARE_MS;
  }

  ended({ isAll, isLarge, isDamaged, startMs, endMs }: Look): void {
    if (isAll) this.#dueMs = isLarge || endMs - startMs > SLOW_MS ? startMs + RARE_MS : endMs;
    // After damage the next look, which tells whether the repair helped, is at everything.
    if (isDamaged) this.#dueMs = endMs;
  }
}
