/**
 * Exact probabilities.
 *
 * @module
 */

/** A reduced fraction; the denominator is positive. */
export interface Fraction {
  /** Not negative. */
  readonly numerator: bigint;
  /** Positive. */
  readonly denominator: bigint;
}

export const ONE: Fraction = { numerator: 1n, denominator: 1n };

/** The steps in which the kernel keeps a probability. */
const KERNEL_STEPS = 2147483648n;

function greatestCommonDivisor(a: bigint, b: bigint): bigint {
  return b === 0n ? a : greatestCommonDivisor(b, a % b);
}

function reduced(numerator: bigint, denominator: bigint): Fraction {
  const divisor = greatestCommonDivisor(numerator, denominator);
  return { numerator: numerator / divisor, denominator: denominator / divisor };
}

/** `a * b`. */
export function multiply(a: Fraction, b: Fraction): Fraction {
  return reduced(a.numerator * b.numerator, a.denominator * b.denominator);
}

/** `a + b`. */
export function add(a: Fraction, b: Fraction): Fraction {
  return reduced(
    a.numerator * b.denominator + b.numerator * a.denominator,
    a.denominator * b.denominator,
  );
}

/** `1 - a`. */
export function complement(a: Fraction): Fraction {
  return reduced(a.denominator - a.numerator, a.denominator);
}

/**
 * Reads a `--probability`. Decimals that are 1/k up to the kernel's rounding are taken as exactly 1/k, because that is what the
 * writer meant; others as the kernel's 31 bits.
 */
export function probabilityFraction(text: string): Fraction {
  const steps = BigInt(Math.round(Number(text) * Number(KERNEL_STEPS)));
  if (steps === 0n) return { numerator: 0n, denominator: 1n };
  const inverse = BigInt(Math.round(1 / Number(text)));
  const stepsOfInverse = BigInt(Math.round(Number(KERNEL_STEPS) / Number(inverse)));
  // Ten written decimals are coarser than the 31 bits by up to one step, kept twice.
  const distance = steps > stepsOfInverse ? steps - stepsOfInverse : stepsOfInverse - steps;
  return distance <= 1n ? { numerator: 1n, denominator: inverse } : reduced(steps, KERNEL_STEPS);
}

/** `1/3`; `1` and `0` without a denominator. */
export function formatFraction(value: Fraction): string {
  return value.denominator === 1n ? String(value.numerator) : `${value.numerator}/${value.denominator}`;
}
