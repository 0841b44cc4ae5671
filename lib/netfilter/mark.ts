/**
 * The mark on a packet that asks for masquerading.
 *
 * @module
 */

/**
 * `0x` and eight hexadecimal digits.
 *
 * @throws {RangeError} if the mark is not exactly one of 32 bits
 */
export function formatMark(mark: number): string {
  if (!Number.isInteger(mark) || mark < 1 || mark > 0x8000_0000 || !Number.isInteger(Math.log2(mark))) {
    throw new RangeError(`Masquerade mark must be one bit of 32: got ${mark}`);
  }
  return "0x" + mark.toString(16).padStart(8, "0");
}
