/**
 * Hashes for names of chains: Services need distinct chain names, and their own names do not fit.
 *
 * @module
 */
import { sha256 } from "@noble/hashes/sha2";

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const PAIR_BITS = 10;
/** Base32 digits of ten bits, in pairs. */
const BASE32_PAIRS: readonly string[] = Array.from(
  { length: 1 << PAIR_BITS },
  (_, bits) => BASE32.charAt(bits >> 5) + BASE32.charAt(bits & 31),
);

const encoder = new TextEncoder();
const MAX_ASCII = 0x7f;
/** Buffer for UTF-8; most names fit. */
const input = new Uint8Array(256);
const digest = new Uint8Array(32);
/** Hash state before any input, and one to work in: making one per name takes as long as hashing it. */
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

/** UTF-8 bytes of a text, valid until the next call. */
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
