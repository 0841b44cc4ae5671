/**
 * Short names that stand for long ones: chains must tell Services apart whose names do not fit.
 *
 * @module
 */
import { sha256 } from "@noble/hashes/sha2";

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const PAIR_BITS = 10;
/** Two base32 digits for each ten bits. */
const BASE32_PAIRS: readonly string[] = Array.from(
  { length: 1 << PAIR_BITS },
  (_, bits) => BASE32.charAt(bits >> 5) + BASE32.charAt(bits & 31),
);

const encoder = new TextEncoder();

/** First `digits` (an even number, at most 50) base32 digits of the SHA-256 of a text's UTF-8 form. */
export function base32Sha256(text: string, digits: number): string {
  const bytes = sha256(encoder.encode(text));
  let hash = "";
  for (let bit = 0; hash.length < digits; bit += PAIR_BITS) {
    const at = bit >> 3;
    // Ten bits lie in two bytes; where they begin within the last bit of one, in three.
    const three = bytes[at]! << 16 | bytes[at + 1]! << 8 | bytes[at + 2]!;
    hash += BASE32_PAIRS[three >> (24 - PAIR_BITS - (bit & 7)) & BASE32_PAIRS.length - 1]!;
  }
  return hash;
}
