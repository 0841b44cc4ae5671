/**
 * Values out of JSON that nobody has looked at.
 *
 * @module
 */

/** True for an object, and not for a list or null. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
