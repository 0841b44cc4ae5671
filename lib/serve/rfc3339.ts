/**
 * Times as Kubernetes writes them.
 *
 * @module
 */

/** How Go writes a time that was never set. */
export const ZERO_TIME = "0001-01-01T00:00:00Z";

/**
 * RFC 3339 in the local zone (`Z` for UTC), with as many digits of a second as are not zero, at most six.
 *
 * @param epochMs milliseconds since the epoch, with fractions
 */
export function formatRfc3339(epochMs: number): string {
  const micros = Math.round(epochMs * 1000);
  const seconds = Math.floor(micros / 1e6);
  const fraction = String(micros - seconds * 1e6).padStart(6, "0").replace(/0+$/, "");
  const offsetMinutes = -new Date(seconds * 1000).getTimezoneOffset();
  const local = new Date((seconds + offsetMinutes * 60) * 1000).toISOString().slice(
    0,
    "2026-01-01T00:00:00".length,
  );
  return local + (fraction === "" ? "" : `.${fraction}`) + formatOffset(offsetMinutes);
}

function formatOffset(minutes: number): string {
  if (minutes === 0) return "Z";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${minutes < 0 ? "-" : "+"}${two(hours)}:${two(rest)}`;
}
