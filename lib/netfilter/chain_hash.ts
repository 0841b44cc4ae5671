/**
 * Short names that stand for long ones: chains must tell Services apart whose names do not fit.
 *
 * @module
 */
import { createHash } from "node:crypto";

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** Two base32 digits for each ten bits. */
const BASE32_PAIRS: readonly string[] = Array.from(
  { length: 1024 },
  (_, bits) => BASE32.charAt(bits >> 5) + BASE32.charAt(bits & 31),
);

/** First `digits` (a multiple of 4, at most 48) base32 digits of the SHA-256 of a text's UTF-8 form. */
export function base32Sha256(text: string, digits: number): string {
  const hex = createHash("sha256").update(text).digest("hex");
  let hash = "";
  // 5 hexadecimal digits are 20 bits are 4 base32 digits.
  for (let at = 0; hash.length < digits; at += 5) {
    const bits = parseInt(hex.slice(at, at + 5), 16);
    hash += BASE32_PAIRS[bits >> 10]! + BASE32_PAIRS[bits & 1023]!;
  }
  return hash;
}
