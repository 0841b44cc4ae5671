/**
 * The texts of values that are no plain words: those of flags as pflag and kube-proxy read them, durations and port ranges as Go writes them.
 *
 * @module
 */

export const INT32_MAX = 2 ** 31 - 1;
export const INT32_MIN = -(2 ** 31);

/** Thrown for a text that is no value of a flag; the message says which values are. */
export class ValueError extends Error {}

/** @throws {ValueError} */
export function fail(message: string): never {
  throw new ValueError(message);
}

/** Go's words for true and false; null for any other. */
export function boolOf(text: string): boolean | null {
  if (/^(1|t|T|TRUE|true|True)$/.test(text)) return true;
  return /^(0|f|F|FALSE|false|False)$/.test(text) ? false : null;
}

/** Reads an integer as pflag: decimal, or with a Go prefix (0x, 0o, 0b, a leading 0 for octal); `_` may part digits. */
export function parseInt32(text: string): number {
  const bare = text.replace(/(?<=[\da-fxob])_(?=[\da-f])/gi, "");
  const match = /^([+-]?)(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[1-9]\d*|0)$/.exec(bare);
  if (match === null) return fail("want an integer");
  const digits = match[2] ?? "0";
  const value = Number(/^0[0-7]/.test(digits) ? `0o${digits.slice(1)}` : digits) *
    (match[1] === "-" ? -1 : 1);
  if (value < INT32_MIN || value > INT32_MAX) fail(`want an integer from ${INT32_MIN} to ${INT32_MAX}`);
  // Not -0, which `Object.is` and JSON distinguish from 0.
  return value === 0 ? 0 : value;
}

/** Fields of one CSV line, as kube-proxy splits the value of a list flag. */
export function splitCsv(text: string): string[] {
  if (text === "") return [];
  const fields: string[] = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y;
  for (;;) {
    const match = field.exec(text);
    if (match === null) return fail('want a comma separated list; a " must enclose a whole item');
    fields.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? "");
    if (match[3] === "") return fields;
  }
}

export function parseGates(text: string): Record<string, boolean> {
  const gates: [name: string, isOn: boolean][] = [];
  for (const item of text.split(",").map((part) => part.trim()).filter((part) => part !== "")) {
    const [name = "", value, ...more] = item.split("=").map((part) => part.trim());
    if (name === "" || value === undefined || more.length > 0) {
      fail(`want NAME=true or NAME=false, found "${item}"`);
    }
    gates.push([name, boolOf(value ?? "") ?? fail(`want true or false for "${name}", found "${value}"`)]);
  }
  return Object.fromEntries(gates);
}

export function parseVmodule(text: string): { filePattern: string; verbosity: number }[] {
  return text.split(",").filter((item) => item !== "").map((item) => {
    const match = /^([^=]+)=(\d+)$/.exec(item);
    const verbosity = Number(match?.[2]);
    if (match === null || verbosity > INT32_MAX) {
      return fail(`want pattern=N with commas between, found "${item}"`);
    }
    return { filePattern: match[1] ?? "", verbosity };
  });
}

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

/** Ports from `first` to `last`, both included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

const HIGHEST_PORT = 65_535;

/**
 * Reads a range as kube-proxy does; null for no range at all: an empty text, `0` and `0-0` let the kernel choose.
 *
 * @throws {SyntaxError} if the text is no port range
 */
export function parsePortRange(text: string): PortRange | null {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  const [, low = "", sign, high = ""] = /^(\d+)(?:([-+])(\d+))?$/.exec(trimmed) ?? [];
  const first = Number(low);
  const last = sign === "-"
    ? Number(high)
    : sign === "+"
    ? Math.min(HIGHEST_PORT, first + Number(high))
    : first;
  if (low === "" || first > HIGHEST_PORT || last > HIGHEST_PORT || last < first) {
    throw new SyntaxError(`"${text}" is no range of ports such as 30000-31000, 30000+1000 or 30000`);
  }
  return last === 0 ? null : { first: Math.max(1, first), last };
}
