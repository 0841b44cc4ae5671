/**
 * Short names that stand for long ones: names of chains must differ for Services whose names do not fit.
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
const MAX_ASCII = 0x7f;
/** Most names are shorter. */
const input = new Uint8Array(256);
const digest = new Uint8Array(32);
/** The state before any input, and one to work in: making one for each name takes as long as hashing it. */
const initial = sha256.create();
const working = sha256.create();

/** First `digits` (an even number, at most 50) base32 digits of the SHA-256 of a text's UTF-8 form. */
export function base32Sha256(text: string, digits: number): string {
  initial._cloneInto(working);
  working.update(utf8Of(text)).digestInto(digest);
  let hash = "";
  for (let bit = 0; hash.length < digits; bit += PAIR_BITS) {
    const at = bit >> 3;
    // Ten bits lie in two bytes; where they begin within the last bit of one, in three.
    const three = digest[at]! << 16 | digest[at + 1]! << 8 | digest[at + 2]!;
    hash += BASE32_PAIRS[three >> (24 - PAIR_BITS - (bit & 7)) & BASE32_PAIRS.length - 1]!;
  }
  return hash;
}

/** Valid until the next call. */
function utf8Of(text: string): Uint8Array {
  const { length } = text;
  if (length > input.length) return encoder.encode(text);
  for (let at = 0; at < length; at++) {
    const code = text.charCodeAt(at);
    if (code > MAX_ASCII) return encoder.encode(text);
    input[at] = code;
  }
  return input.subarray(0, length);
}
