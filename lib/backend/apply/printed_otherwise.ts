/**
 * Chains that a tool prints otherwise than they were written, be it that its release has other words for a rule, or that it writes
 * nothing and says that all is well: they are written again once, not for ever.
 *
 * @module
 */

/** What is known of one family's chains. */
export class PrintedOtherwise {
  /** Chain → how it is printed although it was written again. */
  readonly #known = new Map<string, string>();
  /** Chains that differed at the last look at everything, as they were printed: before the repair. */
  #before: ReadonlyMap<string, string> = new Map();
  /** Everything was compared and written since the last look began. */
  #isRepaired = false;
  /** Likewise, before the look under way. */
  #isRightAfter = false;

  /** Everything was compared, and what differed was written. */
  fullySynced(): void {
    this.#isRepaired = true;
  }

  /** A look begins, which may fail: what a later one finds may have been changed since. */
  lookBegins(): void {
    this.#isRightAfter = this.#isRepaired;
    this.#isRepaired = false;
  }

  /**
   * Takes out of `differing` what is known. After a look at everything that is also what is printed, right after it was written again,
   * just as before: a process that changed it would have done so in the same moment.
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
