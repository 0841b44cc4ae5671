import { createHash } from "node:crypto";
import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { base32Sha256 } from "./chain_hash.ts";

const NONE = { permissions: "none" } as const;
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** The same base32 text, digit by digit, from the runtime's own hash. */
function oracle(text: string, digits: number): string {
  const hex = createHash("sha256").update(text).digest("hex");
  const bits = [...hex].map((digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
  return bits.match(/.{5}/g)!.slice(0, digits).map((five) => DIGITS.charAt(parseInt(five, 2))).join("");
}

Deno.test("base32 digits are the first bits of the SHA-256 of a text's UTF-8 form, five each", NONE, () => {
  assertEquals(base32Sha256("abc", 16), oracle("abc", 16));
  fc.assert(
    fc.property(
      fc.string({ unit: "binary", maxLength: 200 }),
      fc.integer({ min: 0, max: 25 }),
      (text, pairs) => {
        assertEquals(base32Sha256(text, 2 * pairs), oracle(text, 2 * pairs));
      },
    ),
  );
});
