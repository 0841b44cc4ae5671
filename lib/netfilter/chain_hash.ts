/**
 * Short names that stand for long ones: chains must tell Services apart whose names do not fit.
 *
 * @module
 */
import { sha256 } from "./sha256.ts";

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const PAIR_BITS = 10;
/** Two base32 digits for each ten bits. */
const BASE32_PAIRS: readonly string[] = Array.from(
  { length: 1 << PAIR_BITS },
  (_, bits) => BASE32.charAt(bits >> 5) + BASE32.charAt(bits & 31),
);

/** First `digits` (an even number, at most 50) base32 digits of the SHA-256 of a text's UTF-8 form. */
export function base32Sha256(text: string, digits: number): string {
  const words = sha256(text);
  let hash = "";
  for (let bit = 0; hash.length < digits; bit += PAIR_BITS) {
    const at = bit >> 5;
    // How many of the ten bits the next word has.
    const over = (bit & 31) + PAIR_BITS - 32;
    const bits = over <= 0 ? words[at]! >>> -over : words[at]! << over | words[at + 1]! >>> (32 - over);
    hash += BASE32_PAIRS[bits & BASE32_PAIRS.length - 1]!;
  }
  return hash;
}
