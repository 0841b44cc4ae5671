/**
 * How far one packet is followed. Rules of anybody may lead it on more ways than there is time for: forty chains, each of which jumps to
 * the next one twice, are walked through 2^40 times by the kernel, too.
 *
 * @module
 */

/** Rules that are looked at; a packet passes 100,000 of them at 44,000 Services. */
const MOST_STEPS = 1_000_000;
/** Chains that are entered; a Service has one for each of its endpoints. */
const MOST_JUMPS = 10_000;
/** Histories side by side. */
const MOST_WAYS = 10_000;

/** Counts what one packet takes; once it is too much, that is reported, and its way is told as far as it was followed. */
export class WalkBudget {
  readonly #report: (problem: string) => void;
  #steps = 0;
  #jumps = 0;

  constructor(report: (problem: string) => void) {
    this.#report = report;
  }

  /** Another rule; false: it is left out. */
  step(): boolean {
    return this.#isWithin(++this.#steps, MOST_STEPS, "rules");
  }

  /** Another chain; false: it is left out. */
  jump(): boolean {
    return this.#isWithin(++this.#jumps, MOST_JUMPS, "jumps");
  }

  /** As many of them as are followed. */
  ways<Way>(ways: readonly Way[]): readonly Way[] {
    return this.#isWithin(ways.length, MOST_WAYS, "ways") ? ways : ways.slice(0, MOST_WAYS);
  }

  #isWithin(count: number, most: number, what: string): boolean {
    if (count <= most) return true;
    this.#report(`A packet takes more than ${most} ${what} here: it is not followed to its end`);
    return false;
  }
}
