/**
 * Numbers and times as people read them, with units.
 *
 * @module
 */

const GROUPED = new Intl.NumberFormat("en-US");
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/**
 * `10,000`
 *
 * @param {number} value
 */
export function count(value) {
  return GROUPED.format(value);
}

/** A space between a number and its unit at which no line breaks. */
const NO_BREAK = "\u00a0";

/**
 * `1 Service`, `10,000 Services`
 *
 * @param {number} value
 * @param {string} one
 * @param {string} [many]
 */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)}${NO_BREAK}${value === 1 ? one : many}`;
}

/**
 * `4 chains, 12 elements`; a dash for nothing.
 *
 * @param {Readonly<Record<string, number>>} amounts by kind
 * @param {(amount: number, kind: string) => string} [show]
 */
export function listed(amounts, show = (amount, kind) => `${count(amount)} ${kind}`) {
  return Object.entries(amounts).map(([kind, amount]) => show(amount, kind)).join(", ") || "–";
}

/**
 * `0.4 ms`, `12 ms`, `1.24 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`
 *
 * @param {number} ms
 */
export function duration(ms) {
  return durationWords(ms).replaceAll(" ", NO_BREAK);
}

/** Larger units, each with the next smaller one: seconds in the larger, its name, how many of the smaller it has, the smaller's name. */
const UNITS = /** @type {const} */ ([[60, "min", 60, "s"], [3600, "h", 60, "min"], [86_400, "d", 24, "h"]]);

/** @param {number} ms */
function durationWords(ms) {
  if (ms < 9.95) return `${Math.round(ms * 10) / 10} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${Math.round(ms / (ms < 10_000 ? 10 : 100)) / (ms < 10_000 ? 100 : 10)} s`;
  const seconds = Math.round(ms / 1000);
  const [size, name, parts, part] = UNITS.findLast(([size]) => seconds >= size) ?? UNITS[0];
  const rest = Math.floor(seconds % size / (size / parts));
  return `${Math.floor(seconds / size)} ${name}${rest === 0 ? "" : ` ${rest} ${part}`}`;
}

/**
 * `now`, `3 s ago`, `2 min ago`
 *
 * @param {number} timeMs since the epoch
 */
export function ago(timeMs) {
  const ms = Date.now() - timeMs;
  if (ms < 1500) return "now";
  const seconds = Math.round(ms / 1000);
  const [size, name] = UNITS.findLast(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${name} ago`;
}

/**
 * `21:14:03`
 *
 * @param {number} timeMs since the epoch
 */
export function timeOfDay(timeMs) {
  return CLOCK.format(timeMs);
}

/**
 * The time of day, with the day if that is not today.
 *
 * @param {number} timeMs since the epoch
 */
export function clock(timeMs) {
  const isToday = new Date(timeMs).toDateString() === new Date().toDateString();
  return `${isToday ? "" : `${DAY.format(timeMs)} `}${timeOfDay(timeMs)}`;
}

/**
 * `134 MB`
 *
 * @param {number} value at least a million
 */
export function megabytes(value) {
  return `${
    Math.round(value / (value < 10_000_000 ? 100_000 : 1_000_000)) / (value < 10_000_000 ? 10 : 1)
  } MB`;
}

/**
 * `50 %` of a fraction such as `1/2`
 *
 * @param {string} fraction
 */
export function percent(fraction) {
  const part = percentOf(fraction);
  return `${part < 10 && part % 1 !== 0 ? part.toFixed(1) : Math.round(part)} %`;
}

/** @param {string} fraction */
export function percentOf(fraction) {
  const [above = "0", below = "1"] = fraction.split("/");
  return 100 * Number(above) / Number(below);
}
