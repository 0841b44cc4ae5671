/**
 * Go durations (`1h30m0s`), in milliseconds.
 *
 * @module
 */

const UNITS_MS: Readonly<Record<string, number>> = {
  "ns": 1e-6,
  "us": 1e-3,
  "µs": 1e-3, // U+00B5 micro sign
  "μs": 1e-3, // U+03BC Greek mu
  "ms": 1,
  "s": 1_000,
  "m": 60_000,
  "h": 3_600_000,
};
const NUMBER = String.raw`\d+(?:\.\d*)?|\.\d+`;
const UNIT = "ns|us|µs|μs|ms|s|m|h";
const DURATION = new RegExp(`^[-+]?(?:0|(?:(?:${NUMBER})(?:${UNIT}))+)$`);
const PART = new RegExp(`(${NUMBER})(${UNIT})`, "g");
/** Go holds a duration in a signed 64-bit number of nanoseconds. */
const LIMIT_MS = 2 ** 63 / 1e6;

/** The duration in milliseconds, to the nanosecond; null for what Go does not take for one. */
export function parseDuration(text: string): number | null {
  if (!DURATION.test(text)) return null;
  let totalMs = 0;
  for (const [, number, unit = ""] of text.matchAll(PART)) totalMs += Number(number) * (UNITS_MS[unit] ?? 0);
  if (totalMs >= LIMIT_MS) return null;
  const wholeMs = Math.trunc(totalMs);
  const durationMs = wholeMs + Math.round((totalMs - wholeMs) * 1e6) / 1e6;
  return text.startsWith("-") && durationMs !== 0 ? -durationMs : durationMs;
}

/** Go's text of a number of milliseconds, e.g. `1h0m0s`, `1.5s`, `250ms`, `0s`; anything finer than a nanosecond is rounded. */
export function formatDuration(durationMs: number): string {
  if (durationMs < 0) return `-${formatDuration(-durationMs)}`;
  const minutes = Math.floor(durationMs / 60_000);
  const restNs = Math.round((durationMs - minutes * 60_000) * 1e6);
  if (minutes === 0 && restNs < 1e9) {
    if (restNs === 0) return "0s";
    if (restNs < 1e3) return `${restNs}ns`;
    return restNs < 1e6 ? `${restNs / 1e3}µs` : `${restNs / 1e6}ms`;
  }
  const fraction = String(restNs % 1e9).padStart(9, "0").replace(/0+$/, "");
  const seconds = `${Math.floor(restNs / 1e9)}${fraction === "" ? "" : `.${fraction}`}s`;
  if (minutes === 0) return seconds;
  return minutes < 60 ? `${minutes}m${seconds}` : `${Math.floor(minutes / 60)}h${minutes % 60}m${seconds}`;
}
