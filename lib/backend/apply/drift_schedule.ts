/**
 * What the drift checks of one family and mode remember from check to check: when everything is listed, and which chains the tool prints
 * otherwise than they were written. These are learned in three steps: a check finds that a chain differs; a full sync writes it again; the
 * next check of everything finds it printed just as before. A check that failed, gave way or was overtaken by a change teaches nothing.
 *
 * @module
 */

/** A list that takes longer, in milliseconds, is not cheap, however little of it is ours. */
const SLOW_MS = 600;
/** Milliseconds between lists of everything where they are not cheap. */
const RARE_MS = 3_600_000;

/** A check that has ended. */
export interface EndedCheck {
  /** True if everything was listed. */
  readonly isAll: boolean;
  /** There are so many rules that to list them is not cheap. */
  readonly isLarge: boolean;
  readonly isDamaged: boolean;
  /** Milliseconds, monotonic. */
  readonly startMs: number;
  readonly endMs: number;
}

/** Drift check schedule; see the module. */
export class DriftSchedule {
  #dueMs = Number.NEGATIVE_INFINITY;
  /** When the last check of everything began, in milliseconds, until it has ended. */
  #begunMs: number | null = null;
  /** A full sync succeeded since the last check began. */
  #syncedSinceCheck = false;
  /** A full sync succeeded between the last check and the one under way. */
  #syncedBeforeCheck = false;
  /** Chains that differed at the last check of everything, as they were printed. */
  #printedLastTime: ReadonlyMap<string, string> = new Map();
  /** Chain → how the tool prints it although it was written again. */
  readonly #tolerated = new Map<string, string>();

  /** A full sync succeeded: everything was compared, and what differed was written. */
  fullySynced(): void {
    this.#syncedSinceCheck = true;
  }

  /** A check begins, which may fail. @returns true if it is one of everything: at once while that is cheap, once an hour where it is not */
  begin(nowMs: number): boolean {
    // What a later check finds may have been changed since.
    this.#syncedBeforeCheck = this.#syncedSinceCheck;
    this.#syncedSinceCheck = false;
    if (nowMs < this.#dueMs) return false;
    // Lists that fail one after the other come ever more rarely: they must not be all that the machine does from now on.
    if (this.#begunMs !== null) this.#dueMs = nowMs + Math.min(RARE_MS, 2 * (nowMs - this.#begunMs));
    this.#begunMs = nowMs;
    return true;
  }

  ended({ isAll, isLarge, isDamaged, startMs, endMs }: EndedCheck): void {
    if (isAll) {
      this.#begunMs = null;
      this.#dueMs = isLarge || endMs - startMs > SLOW_MS ? startMs + RARE_MS : endMs;
    }
    // After damage the next check, which shows whether the repair helped, is one of everything.
    if (isDamaged) this.#dueMs = endMs;
  }

  /** The check under way has given way to a change: the next one takes its place. */
  gaveWay(): void {
    this.#begunMs = null;
  }

  /**
   * Takes out of `differing` the chains that the tool is known to print otherwise than they are written, be it that its release has other
   * words for a rule, or that it writes nothing and reports success: they are written again once, not for ever. A chain that is printed
   * as it was written is not known any more.
   *
   * @param differing chain → its rules as they are printed, `""` for none
   * @returns the chains that are known from now on
   */
  sift(differing: Map<string, string>, isAll: boolean): readonly string[] {
    for (const [name, text] of this.#tolerated) {
      if (differing.get(name) === text) differing.delete(name);
      else if (isAll && !differing.has(name)) this.#tolerated.delete(name);
    }
    if (!isAll) return [];
    // Another process that changed the chain in between would have had to do so right after the full sync. No tool prints rules as
    // none: a chain that is empty time after time is flushed time after time.
    const learned = [...differing].filter(([name, text]) =>
      this.#syncedBeforeCheck && text !== "" && this.#printedLastTime.get(name) === text
    );
    for (const [name, text] of learned) {
      this.#tolerated.set(name, text);
      differing.delete(name);
    }
    this.#printedLastTime = differing;
    return learned.map(([name]) => name);
  }
}
