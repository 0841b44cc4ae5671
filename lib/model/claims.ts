/**
 * Who wants which destination (an address or a node port, with protocol and port): the first in rank has it.
 *
 * @module
 */

/** Destination → those who want it, the first in rank first; nearly always one, which then stands by itself. */
export class Claims<Claimant extends string | object> {
  readonly #compare: (left: Claimant, right: Claimant) => number;
  readonly #claimants = new Map<string, Claimant | Claimant[]>();

  /** @param compare negative if the left one comes first, 0 if it is the same claimant */
  constructor(compare: (left: Claimant, right: Claimant) => number) {
    this.#compare = compare;
  }

  get isEmpty(): boolean {
    return this.#claimants.size === 0;
  }

  first(destination: string): Claimant | undefined {
    const claimants = this.#claimants.get(destination);
    return Array.isArray(claimants) ? claimants[0] : claimants;
  }

  /** In the order of their rank. */
  of(destination: string): readonly Claimant[] {
    const claimants = this.#claimants.get(destination);
    return claimants === undefined ? [] : Array.isArray(claimants) ? claimants : [claimants];
  }

  /** Takes the place of the same claimant, if that is there. */
  add(destination: string, claimant: Claimant): void {
    const known = this.#claimants.get(destination);
    if (known === undefined) {
      this.#claimants.set(destination, claimant);
      return;
    }
    const claimants = Array.isArray(known) ? known : [known];
    const at = this.#placeOf(claimant, claimants);
    claimants.splice(at, this.#isAt(claimants, at, claimant) ? 1 : 0, claimant);
    this.#claimants.set(destination, claimants.length === 1 ? claimant : claimants);
  }

  delete(destination: string, claimant: Claimant): void {
    const known = this.#claimants.get(destination);
    if (known === undefined) return;
    const claimants = Array.isArray(known) ? known : [known];
    const at = this.#placeOf(claimant, claimants);
    if (!this.#isAt(claimants, at, claimant)) return;
    // In place: thousands may be withdrawn one by one.
    claimants.splice(at, 1);
    if (claimants.length === 0) this.#claimants.delete(destination);
    else if (claimants.length === 1) this.#claimants.set(destination, claimants[0]!);
  }

  #isAt(claimants: readonly Claimant[], at: number, claimant: Claimant): boolean {
    return at < claimants.length && this.#compare(claimants[at]!, claimant) === 0;
  }

  /** Where it is, or would be: a thousand may want one destination. */
  #placeOf(claimant: Claimant, claimants: readonly Claimant[]): number {
    let from = 0;
    let to = claimants.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#compare(claimants[middle]!, claimant) < 0) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}
