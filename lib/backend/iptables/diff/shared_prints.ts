/**
 * How iptables printed the chains that Services share: as those of one Service (`seen_chains`), but their rules come and go one by one,
 * so that nobody knows their order.
 *
 * @module
 */
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { judgePrint, type PrintFinding, type SeenChain } from "./seen_chains.ts";

/** Sums of two numbers below it are exact. */
const DIGESTS = 2 ** 52;

/** Stands for the rules in whatever order: the sum of what stands for each. */
function digestOf(rules: Iterable<string>): number {
  let sum = 0;
  for (const rule of rules) sum = (sum + hashRules([rule]) % DIGESTS) % DIGESTS;
  return sum;
}

/** Shared chains, by `dispatchChainKey`. */
export class SharedPrints {
  /** Digest of the rules that Services have in it. */
  readonly #digests = new Map<string, number>();
  readonly #seen = new Map<string, SeenChain>();
  /** Those with the rules, in the order, with which they were seen. */
  readonly #untouched = new Set<string>();
  /** Found damaged → how it was printed; not written again yet. */
  readonly #damaged = new Map<string, number>();
  /** Written again → how it was printed before. */
  readonly #repaired = new Map<string, number>();

  /** What `former` knows of how chains are printed holds for these, which were written since. */
  inherit(former: SharedPrints): void {
    for (const [key, seen] of former.#seen) this.#seen.set(key, seen);
    for (const [key, print] of [...former.#repaired, ...former.#damaged]) this.#repaired.set(key, print);
  }

  /** A rule comes (1) or goes (-1). */
  changed(key: string, rule: string, by: 1 | -1): void {
    const digest = digestOf([rule]);
    this.#digests.set(
      key,
      ((this.#digests.get(key) ?? 0) + (by === 1 ? digest : DIGESTS - digest)) % DIGESTS,
    );
    this.touched(key);
  }

  /** Rules that no Service has in it changed. */
  touched(key: string): void {
    this.#untouched.delete(key);
    const seen = this.#seen.get(key);
    if (seen?.isLeft === true) this.#seen.set(key, { ...seen, isLeft: false });
  }

  /** What was found damaged is written. */
  written(): void {
    for (const [key, print] of this.#damaged) {
      this.#repaired.set(key, print);
      this.#untouched.delete(key);
    }
    this.#damaged.clear();
  }

  /**
   * Judges what is printed of a chain with as many rules as it should have, and remembers it.
   *
   * @param rules those that no Service has in it
   */
  look(key: string, rules: readonly string[], print: number): PrintFinding {
    const text = ((this.#digests.get(key) ?? 0) + digestOf(rules)) % DIGESTS;
    const seen = this.#seen.get(key);
    const finding = judgePrint(print, {
      same: this.#untouched.has(key) ? seen?.print : undefined,
      other: seen?.text === text ? undefined : seen,
      repaired: this.#repaired.get(key),
    });
    if (this.#damaged.has(key)) return finding === "known" ? "known" : "damaged";
    if (finding === "damaged") return finding;
    this.#repaired.delete(key);
    if (seen?.print === print && seen.text !== text) this.#seen.set(key, { ...seen, isLeft: true });
    else {
      this.#seen.set(key, { text, print, isLeft: false });
      this.#untouched.add(key);
    }
    return finding;
  }

  /** A look found it damaged: the next write writes it anew. */
  markDamaged(key: string, print: number): void {
    this.#damaged.set(key, print);
  }

  isMarkedDamaged(key: string): boolean {
    return this.#damaged.has(key);
  }
}
