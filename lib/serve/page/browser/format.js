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

/** Between a number and its unit no line ends. */
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
 * `0.4 ms`, `12 ms`, `1.24 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`
 *
 * @param {number} ms
 */
export function duration(ms) {
  return durationWords(ms).replaceAll(" ", NO_BREAK);
}

/** @param {number} ms */
function durationWords(ms) {
  if (ms < 9.95) return `${Math.round(ms * 10) / 10} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${Math.round(ms / (ms < 10_000 ? 10 : 100)) / (ms < 10_000 ? 100 : 10)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return twoUnits(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return twoUnits(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.floor(minutes / 60);
  return twoUnits(Math.floor(hours / 24), "d", hours % 24, "h");
}

/**
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function twoUnits(large, largeUnit, small, smallUnit) {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/**
 * `now`, `3 s ago`, `2 min ago`
 *
 * @param {number} timeMs since the epoch
 * @param {number} nowMs
 */
export function ago(timeMs, nowMs) {
  const ms = nowMs - timeMs;
  if (ms < 1500) return "now";
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/**
 * `21:14:03`, with the day if that is another one
 *
 * @param {number} timeMs since the epoch
 * @param {number} nowMs
 */
export function clock(timeMs, nowMs) {
  const [time, now] = [new Date(timeMs), new Date(nowMs)];
  const text = CLOCK.format(time);
  return time.toDateString() === now.toDateString() ? text : `${DAY.format(time)} ${text}`;
}

/**
 * `134 MB`
 *
 * @param {number} value
 */
export function bytes(value) {
  if (value < 1000) return `${value} B`;
  if (value < 1_000_000) return `${Math.round(value / 100) / 10} kB`;
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
  const [above = "0", below = "1"] = fraction.split("/");
  const part = 100 * Number(above) / Number(below);
  return `${part < 10 && part % 1 !== 0 ? part.toFixed(1) : Math.round(part)} %`;
}
