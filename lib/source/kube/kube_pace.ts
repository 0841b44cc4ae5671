/**
 * How long to wait before asking for a resource again, by what failed in a row.
 *
 * @module
 */

/** What a {@linkcode RetryPace} needs. */
export interface RetryPaceOptions {
  /** Wait after the first failure in a row, in milliseconds; doubled with each further one, and up to twice as long by chance. */
  readonly initialMs: number;
  readonly maxMs: number;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
}

/** A watch that fails so often since the last list is tried from a new list: the way out of whatever a server has against a version. */
const WATCHES_BEFORE_LIST = 4;

/**
 * Lists, watches and expired versions count by themselves: a list that is good says nothing of the watch that follows it, and each
 * list that an expired version costs is all there is. The longest row decides.
 */
export class RetryPace {
  readonly #options: RetryPaceOptions;
  #lists = 0;
  #watches = 0;
  #watchesSinceList = 0;
  #expiries = 0;

  constructor(options: RetryPaceOptions) {
    this.#options = options;
  }

  /** A list came in whole. */
  listed(): void {
    this.#lists = 0;
    this.#watchesSinceList = 0;
  }

  /** A watch brought something, or lived long enough to be a good one. */
  watched(): void {
    this.#watches = this.#watchesSinceList = 0;
  }

  /** A watch lived so long that the next expired version is the ordinary course of things. */
  calm(): void {
    this.#expiries = 0;
  }

  /** Nothing that was before counts any more. */
  reset(): void {
    this.#lists =
      this.#watches =
      this.#watchesSinceList =
      this.#expiries =
        0;
  }

  failed(what: "list" | "watch"): void {
    if (what === "list") {
      this.#lists++;
    } else {
      this.#watches++;
      this.#watchesSinceList++;
    }
  }

  /**
   * The server answers, so the watches that failed before have had their waits: a server that starts again expires what it gave
   * out before, and some of what it lists first.
   *
   * @returns true if the state may be listed at once: the first time in a row, which every server has now and then
   */
  expired(): boolean {
    this.#watches = 0;
    return ++this.#expiries === 1;
  }

  /** True if the watch should be tried from a new list. */
  get needsList(): boolean {
    return this.#watchesSinceList >= WATCHES_BEFORE_LIST;
  }

  /** The wait after what was told last, in milliseconds; `askedMs` is what the server wants, at least. */
  waitMs(askedMs = 0): number {
    const { initialMs, maxMs, random } = this.#options;
    const failures = Math.max(this.#lists, this.#watches, this.#expiries - 1, 1);
    const baseMs = Math.min(initialMs * 2 ** (failures - 1), maxMs);
    return Math.max(askedMs, Math.round(baseMs * (1 + random())));
  }
}
