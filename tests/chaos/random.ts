/**
 * Chance that can be had again: the same seed gives the same numbers, on every machine.
 *
 * @module
 */

/** A stream of numbers that follows from its seed (mulberry32). */
export class Random {
  #state: number;

  /** @param seed any whole number; its lowest 32 bits count */
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A stream of its own for part number `index` of something, which does not depend on what other parts have drawn. */
  static part(seed: number, index: number): Random {
    const mixed = new Random(Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) + Math.imul(index + 1, 0xc2b2ae35));
    mixed.unit();
    return mixed;
  }

  /** From 0 (inclusive) to 1 (exclusive). */
  unit(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number from `least` to `most`, both included. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.unit() * (most - least + 1));
  }

  /** True in this share of cases. */
  chance(share: number): boolean {
    return this.unit() < share;
  }

  /** One of these, all equally likely. */
  pick<T>(from: readonly T[]): T {
    if (from.length === 0) throw new RangeError("Nothing to pick from");
    return from[this.whole(0, from.length - 1)]!;
  }

  /** At least so many of these, in their order. */
  some<T>(from: readonly T[], least = 0): T[] {
    for (;;) {
      const chosen = from.filter(() => this.chance(0.5));
      if (chosen.length >= least) return chosen;
    }
  }
}
