import { createHash } from "node:crypto";
import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { base32Sha256 } from "./chain_hash.ts";
import { sha256 } from "./sha256.ts";

const NONE = { permissions: "none" } as const;

function hex(text: string): string {
  return [...sha256(text)].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function oracle(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

Deno.test("hashes are SHA-256 at every length around the ends of blocks", NONE, () => {
  assertEquals(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  for (let length = 0; length < 200; length++) {
    const text = "x".repeat(length);
    assertEquals(hex(text), oracle(text), `${length} bytes`);
  }
  // Longer than what is kept for a text, then short again.
  for (const text of ["long ".repeat(10_000), "", "€".repeat(999)]) assertEquals(hex(text), oracle(text));
});

Deno.test("hashes of any texts are SHA-256 of their UTF-8 form, lone surrogates included", NONE, () => {
  fc.assert(fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
    assertEquals(hex(text), oracle(text));
  }));
});

Deno.test("base32 digits are the hash's first bits, five each", NONE, () => {
  fc.assert(fc.property(fc.string(), fc.integer({ min: 0, max: 25 }), (text, pairs) => {
    const bits = [...oracle(text)].map((digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
    const digits = bits.match(/.{5}/g)!.slice(0, 2 * pairs)
      .map((five) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".charAt(parseInt(five, 2)));
    assertEquals(base32Sha256(text, 2 * pairs), digits.join(""));
  }));
});
