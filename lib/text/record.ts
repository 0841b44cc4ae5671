/**
 * Objects by their fields: values out of JSON that are not checked yet, and counts by name.
 *
 * @module
 */

/** True for an object, and not for a list or null. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The sum of all counts. */
export function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
