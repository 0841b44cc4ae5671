/**
 * Kubernetes quantities (`64Ki`, `0`), as far as a configuration needs them.
 *
 * @module
 */

const QUANTITY_REGEXP = /^[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/;

/** True for the text of a quantity. */
export function isQuantity(text: string): boolean {
  return QUANTITY_REGEXP.test(text);
}

/** True for a quantity of nothing, whatever its unit. */
export function isZeroQuantity(text: string): boolean {
  return Number(QUANTITY_REGEXP.exec(text)?.[1] ?? NaN) === 0;
}
