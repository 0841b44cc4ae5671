/**
 * What the drift checks of one family and mode remember from check to check: when everything is listed, and which chains the tool prints
 * otherwise than they were written.
 *
 * @module
 */

/** A list that takes longer, in milliseconds, is not cheap, however little of it is ours. */
const SLOW_MS = 600;
/** How long there is no other list of everything where that is not cheap. */
const RARE_MS = 3_600_000;

/** A check that has ended. */
export interface EndedCheck {
  /** Everything was listed. */
  readonly isAll: boolean;
  /** There is so much that to list it is not cheap. */
  readonly isLarge: boolean;
  readonly isDamaged: boolean;
  /** Milliseconds, monotonic. */
  readonly startMs: number;
  readonly endMs: number;
}

/** See the module. */
export class DriftSchedule {
  #dueMs = Number.NEGATIVE_INFINITY;
  /** The last check of everything has begun and not ended. */
  #hasFailed = false;
  /** Everything was compared and written since the last check began. */
  #isRepaired = false;
  /** Likewise, before the check under way. */
  #isRightAfter = false;
  /** Chains that differed at the last check of everything, as they were printed: before the repair. */
  #before: ReadonlyMap<string, string> = new Map();
  /** Chain → how it is printed although it was written again. */
  readonly #known = new Map<string, string>();

  /** Everything was compared, and what differed was written. */
  fullySynced(): void {
    this.#isRepaired = true;
  }

  /** A check begins, which may fail. @returns true if it is one of everything: at once while that is cheap, once an hour where it is not */
  begin(nowMs: number): boolean {
    // What a later check finds may have been changed since.
    this.#isRightAfter = this.#isRepaired;
    this.#isRepaired = false;
    const isAll = nowMs >= this.#dueMs;
    // Those that do not come to their end must not be all that the machine does from now on; a single one says little.
    if (isAll && this.#hasFailed) this.#dueMs = nowMs + RARE_MS;
    this.#hasFailed = isAll;
    return isAll;
  }

  ended({ isAll, isLarge, isDamaged, startMs, endMs }: EndedCheck): void {
    this.#hasFailed = false;
    if (isAll) this.#dueMs = isLarge || endMs - startMs > SLOW_MS ? startMs + RARE_MS : endMs;
    // After damage the next check, which shows whether the repair helped, is one of everything.
    if (isDamaged) this.#dueMs = endMs;
  }

  /** The check under way has given way to a change: the next one takes its place. */
  gaveWay(): void {
    this.#hasFailed = false;
  }

  /**
   * Takes out of `differing` the chains that the tool is known to print otherwise than they are written, be it that its release has other
   * words for a rule, or that it writes nothing and reports success: they are written again once, not for ever. A chain is known when a
   * check of everything right after it was written again finds it printed just as before: a process that changed it would have done so in
   * the same moment.
   *
   * @param differing chain → its rules as they are printed
   * @returns the chains that are known from now on
   */
  sift(differing: Map<string, string>, isAll: boolean): readonly string[] {
    for (const [name, text] of differing) if (this.#known.get(name) === text) differing.delete(name);
    if (!isAll) return [];
    const news = [...differing.keys()].filter((name) =>
      this.#isRightAfter && this.#before.get(name) === differing.get(name)
    );
    for (const name of news) {
      this.#known.set(name, differing.get(name)!);
      differing.delete(name);
    }
    this.#before = differing;
    return news;
  }
}
