/**
 * A number in place of a chain's rules, for remembering what the kernel holds in little memory.
 *
 * @module
 */

/** 53 bits that stand for the rules of one chain. */
export function hashRules(rules: readonly string[]): number {
  // Two lanes of multiply-and-xor; two different bodies of one chain meet with a probability of 2^-53.
  let high = 0x6d2b79f5, low = 0x1b873593;
  for (const rule of rules) {
    for (let at = 0; at < rule.length; at++) {
      const code = rule.charCodeAt(at);
      high = Math.imul(high ^ code, 0x9e3779b1);
      low = Math.imul(low ^ code, 0x85ebca6b);
      low = (low << 13) | (low >>> 19);
    }
    high = Math.imul(high ^ 10, 0xc2b2ae35) ^ (low >>> 15);
    low = Math.imul(low ^ 10, 0x27d4eb2f) ^ (high >>> 13);
  }
  return ((high >>> 0) & 0x1f_ffff) * 0x1_0000_0000 + (low >>> 0);
}
