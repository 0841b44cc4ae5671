/**
 * What the drift checks of one family and mode remember from check to check: when everything is listed, and which chains the tool prints
 * otherwise than they were written. These are learned in three steps: a check finds that a chain differs; a full sync writes it again; the
 * next check of everything finds it printed just as before. A check that failed, gave way or was overtaken by a change teaches nothing.
 *
 * @module
 */

/** Time after which a list is not cheap, in milliseconds, however few of its rules are ours. */
const SLOW_MS = 600;
/** Milliseconds between lists of everything where they are not cheap. */
const RARE_MS = 3_600_000;

/** A check that has ended. */
export interface EndedCheck {
  /** True if everything was listed. */
  readonly isAll: boolean;
  /** True if there are so many rules that listing them is not cheap. */
  readonly isLarge: boolean;
  readonly isDamaged: boolean;
  /** Milliseconds, monotonic. */
  readonly startMs: number;
  readonly endMs: number;
}

/** Drift check schedule; see the module. */
export class DriftSchedule {
  #dueMs = Number.NEGATIVE_INFINITY;
  /** Start of the check of everything that is under way, or failed, in milliseconds; null: it has ended. */
  #begunMs: number | null = null;
  /** True if a full sync succeeded since the last check began. */
  #syncedSinceCheck = false;
  /** True if a full sync succeeded between the last check and the one under way. */
  #syncedBeforeCheck = false;
  /** Chains that differed at the last check of everything, as they were printed. */
  #printedLastTime: ReadonlyMap<string, string> = new Map();
  /** Chain → how the tool prints it although it was written again. */
  readonly #tolerated = new Map<string, string>();

  /** Notes a full sync that succeeded: it compared everything, and wrote the differences. */
  fullySynced(): void {
    this.#syncedSinceCheck = true;
  }

  /** Begins a check, which may fail. @returns true: it checks everything; at once while that is cheap, else once an hour */
  begin(nowMs: number): boolean {
    // Only a full sync before this check can explain its findings.
    this.#syncedBeforeCheck = this.#syncedSinceCheck;
    this.#syncedSinceCheck = false;
    if (nowMs < this.#dueMs) return false;
    // Repeated failures make full lists ever rarer: the machine must have time for other work.
    if (this.#begunMs !== null) this.#dueMs = nowMs + Math.min(RARE_MS, 2 * (nowMs - this.#begunMs));
    this.#begunMs = nowMs;
    return true;
  }

  ended({ isAll, isLarge, isDamaged, startMs, endMs }: EndedCheck): void {
    if (isAll) {
      this.#begunMs = null;
      this.#dueMs = isLarge || endMs - startMs > SLOW_MS ? startMs + RARE_MS : endMs;
    }
    // After damage the next check, which shows whether the repair helped, is a check of everything.
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
