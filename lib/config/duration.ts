/**
 * Go durations (`1h30m0s`), read and written as Go's `time` package does.
 *
 * @module
 */

const NANOSECONDS_PER_MS = 1_000_000;
/** One past the largest magnitude a Go duration holds (a signed 64-bit number of nanoseconds). */
const LIMIT = 1n << 63n;

const UNITS: ReadonlyMap<string, bigint> = new Map([
  ["ns", 1n],
  ["us", 1_000n],
  ["µs", 1_000n], // U+00B5 micro sign
  ["μs", 1_000n], // U+03BC Greek mu
  ["ms", 1_000_000n],
  ["s", 1_000_000_000n],
  ["m", 60_000_000_000n],
  ["h", 3_600_000_000_000n],
]);

const SIGN_REGEXP = /^[-+]/;
const PART_REGEXP = /^(\d*)(\.\d*)?([^.\d]*)/;

/**
 * The duration in nanoseconds.
 *
 * @throws {SyntaxError} with Go's wording if the text is not a Go duration or exceeds 64 bits.
 */
export function parseDurationNs(text: string): bigint {
  const sign = SIGN_REGEXP.exec(text)?.[0] ?? "";
  let rest = text.slice(sign.length);
  if (rest === "0") return 0n;
  if (rest === "") throw invalid(text);
  let total = 0n;
  while (rest !== "") {
    const [matched, whole = "", fraction = "", unit = ""] = PART_REGEXP.exec(rest) ?? [""];
    if (whole === "" && fraction.length < 2) throw invalid(text);
    if (unit === "") throw new SyntaxError(`time: missing unit in duration ${JSON.stringify(text)}`);
    const unitNs = UNITS.get(unit);
    if (unitNs === undefined) {
      throw new SyntaxError(`time: unknown unit ${JSON.stringify(unit)} in duration ${JSON.stringify(text)}`);
    }
    total += BigInt(whole === "" ? "0" : whole) * unitNs + fractionNs(fraction.slice(1), unitNs);
    if (total > LIMIT) throw invalid(text);
    rest = rest.slice(matched.length);
  }
  if (sign === "-") return -total;
  if (total === LIMIT) throw invalid(text);
  return total;
}

/**
 * The duration in milliseconds, with a fraction below one.
 *
 * @throws {SyntaxError} as {@linkcode parseDurationNs}.
 */
export function parseDuration(text: string): number {
  return Number(parseDurationNs(text)) / NANOSECONDS_PER_MS;
}

/** Go's text of a number of nanoseconds, e.g. `1h0m0s`, `1.5s`, `250ms`, `0s`. */
export function formatDurationNs(nanoseconds: bigint): string {
  if (nanoseconds === 0n) return "0s";
  if (nanoseconds < 0n) return `-${formatDurationNs(-nanoseconds)}`;
  if (nanoseconds < 1_000n) return `${nanoseconds}ns`;
  if (nanoseconds < 1_000_000n) return `${withFraction(nanoseconds, 3)}µs`;
  if (nanoseconds < 1_000_000_000n) return `${withFraction(nanoseconds, 6)}ms`;
  const totalMinutes = nanoseconds / 60_000_000_000n;
  const seconds = `${withFraction(nanoseconds % 60_000_000_000n, 9)}s`;
  if (totalMinutes === 0n) return seconds;
  const minutes = `${totalMinutes % 60n}m${seconds}`;
  return totalMinutes < 60n ? minutes : `${totalMinutes / 60n}h${minutes}`;
}

/** Go's text of a number of milliseconds; anything finer than a nanosecond is rounded. */
export function formatDuration(durationMs: number): string {
  return formatDurationNs(BigInt(Math.round(durationMs * NANOSECONDS_PER_MS)));
}

function invalid(text: string): SyntaxError {
  return new SyntaxError(`time: invalid duration ${JSON.stringify(text)}`);
}

/** Digits after the point, in nanoseconds, truncated the way Go's floating-point step truncates them. */
function fractionNs(digits: string, unitNs: bigint): bigint {
  let fraction = 0n;
  let scale = 1;
  for (const digit of digits) {
    // Go stops where 63 bits end; what follows cannot be seen in the result.
    if (fraction > (LIMIT - 1n) / 10n) break;
    const longer = fraction * 10n + BigInt(digit);
    if (longer > LIMIT) break;
    fraction = longer;
    scale *= 10;
  }
  return BigInt(Math.trunc(Number(fraction) * (Number(unitNs) / scale)));
}

function withFraction(value: bigint, digits: number): string {
  const scale = 10n ** BigInt(digits);
  const fraction = (value % scale).toString().padStart(digits, "0").replace(/0+$/, "");
  return fraction === "" ? `${value / scale}` : `${value / scale}.${fraction}`;
}
