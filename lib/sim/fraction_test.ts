import { assertEquals } from "@std/assert";
import { add, complement, formatFraction, multiply, ONE, probabilityFraction } from "./fraction.ts";

Deno.test("a written or saved 1/k is read as exactly 1/k", { permissions: "none" }, () => {
  for (const k of [1, 2, 3, 6, 7, 11, 100, 999, 2048, 5000, 20000]) {
    const expected = { numerator: 1n, denominator: BigInt(k) };
    assertEquals(probabilityFraction((1 / k).toFixed(10)), expected);
    assertEquals(probabilityFraction((Math.round(2 ** 31 / k) / 2 ** 31).toFixed(11)), expected);
  }
});

Deno.test("a probability that is no 1/k is read as the kernel keeps it", { permissions: "none" }, () => {
  assertEquals(formatFraction(probabilityFraction("0.75")), "3/4");
  assertEquals(formatFraction(probabilityFraction("0.6")), "1288490189/2147483648");
  assertEquals(formatFraction(probabilityFraction("0")), "0");
});

Deno.test("a chain of 1/n, 1/(n-1), …, 1 gives every endpoint 1/n", { permissions: "none" }, () => {
  let left = ONE;
  let sum = { numerator: 0n, denominator: 1n };
  for (let remaining = 7; remaining > 0; remaining--) {
    const chance = probabilityFraction((1 / remaining).toFixed(10));
    const share = multiply(left, chance);
    assertEquals(formatFraction(share), "1/7");
    sum = add(sum, share);
    left = multiply(left, complement(chance));
  }
  assertEquals(formatFraction(sum), "1");
  assertEquals(formatFraction(left), "0");
});
