/**
 * A number in place of a chain's rules, for remembering what the kernel holds in little memory.
 *
 * @module
 */

/** 53 bits that stand for the rules of one chain. */
export function hashRules(rules: readonly string[]): number {
  const hash = new RulesHash();
  for (const rule of rules) hash.add(rule);
  return hash.value;
}

/** {@linkcode hashRules} of rules that come one by one. */
export class RulesHash {
  // Two lanes of multiply-and-xor; two different bodies of one chain meet with a probability of 2^-53.
  #high = 0x6d2b79f5;
  #low = 0x1b873593;

  /** Takes the next rule, which is what stands in `text` from `from` up to `to`. */
  add(text: string, from: number = 0, to: number = text.length): void {
    let high = this.#high, low = this.#low;
    for (let at = from; at < to; at++) {
      const code = text.charCodeAt(at);
      high = Math.imul(high ^ code, 0x9e3779b1);
      low = Math.imul(low ^ code, 0x85ebca6b);
      low = (low << 13) | (low >>> 19);
    }
    high = Math.imul(high ^ 10, 0xc2b2ae35) ^ (low >>> 15);
    this.#low = Math.imul(low ^ 10, 0x27d4eb2f) ^ (high >>> 13);
    this.#high = high;
  }

  /** Of those that came. */
  get value(): number {
    return ((this.#high >>> 0) & 0x1f_ffff) * 0x1_0000_0000 + (this.#low >>> 0);
  }
}
