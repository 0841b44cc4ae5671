/**
 * Plot of durations over time.
 *
 * @module
 */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clock, duration, timeOfDay } from "./format.js";
import { empty, html, useMedia } from "./parts.js";

/**
 * @typedef {object} PlottedSeries
 * @property {string} name
 * @property {readonly { readonly timeMs: number, readonly value: number | null, readonly isBad: boolean }[]} points oldest first
 */

const HEIGHT = 200;
/** Least value that is drawn, as the axis is logarithmic. */
const LEAST_MS = 0.1;

/** @param {{ label: string, series: readonly PlottedSeries[], empty: string }} props durations in milliseconds */
export function Plot({ label, series, empty: title }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [pointed, setPointed] = useState(/** @type {number | null} */ (null));
  const isDark = useMedia("(prefers-color-scheme: dark)");
  const shown = series.filter(({ points }) => points.some(({ value }) => value !== null));
  // Drawn again only if the values have changed.
  useEffect(() => {
    return box.current === null ? undefined : drawPlot(box.current, shown, setPointed);
  }, [JSON.stringify(shown), isDark]);
  if (shown.length === 0) return empty(title);
  return html`
    <figure class="plot">
      <div ref=${box} class="plot-box" style=${{ height: `${HEIGHT}px` }} aria-hidden="true" />
      <figcaption>
        <ul class="legend">${shown.map((one) => legend(label, one, pointed))}</ul>
      </figcaption>
    </figure>
  `;
}

/**
 * @param {string} label
 * @param {PlottedSeries} series
 * @param {number | null} pointed time at the cursor
 */
function legend(label, { name, points }, pointed) {
  const known = points.filter(({ value }) => value !== null);
  const at = pointed === null ? known.at(-1) : known.find(({ timeMs }) => timeMs === pointed);
  const longest = Math.max(...known.map(({ value }) => value ?? 0));
  const failures = points.filter(({ isBad }) => isBad).length;
  return html`
    <li key=${name}>
      <span class="swatch ${name}" aria-hidden="true" />
      <span class="unseen">${label}, </span>
      <strong>${name}</strong>
      ${at && ` ${duration(at.value ?? 0)} at ${clock(at.timeMs)}${at.isBad ? ", failed" : ""}`}
      <span class="muted"> · longest ${duration(longest)}${failures > 0 && ` · ${failures} failed`}</span>
    </li>
  `;
}

/**
 * @param {HTMLDivElement} box
 * @param {readonly PlottedSeries[]} series
 * @param {(timeMs: number | null) => void} point
 * @returns {() => void} removes the plot
 */
function drawPlot(box, series, point) {
  const colour = (/** @type {string} */ name) => {
    // A canvas needs the computed colour, which differs between light and dark pages.
    box.style.color = `var(${name})`;
    return getComputedStyle(box).color;
  };
  const all = series.flatMap(({ points }) => points);
  const times = [...new Set(all.map(({ timeMs }) => timeMs))].sort((one, other) => one - other);
  const columns = series.map(({ points }) => columnOf(points, times));
  const bad = new Map(all.filter(({ isBad }) => isBad).map((one) => [one.timeMs, one.value]));
  const failures = times.map((timeMs) => bad.get(timeMs) ?? null);
  const plot = new uPlot(
    {
      width: box.clientWidth,
      height: HEIGHT,
      ms: 1,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { y: { distr: 3, range: decades } },
      axes: axesOf(colour),
      series: [
        {},
        ...series.map(({ name }) => ({
          label: name,
          stroke: colour(name === "IPv6" ? "--series-2" : "--series-1"),
          width: 1.75,
          spanGaps: true,
          points: { show: true, size: 5, fill: colour("--surface") },
        })),
        {
          label: "failed",
          stroke: colour("--bad"),
          paths: () => null,
          points: { show: true, size: 10, width: 2, fill: colour("--bad-soft") },
        },
      ],
      hooks: { setCursor: [({ cursor: { idx } }) => point(times[idx ?? -1] ?? null)] },
    },
    /** @type {import("uplot").AlignedData} */ ([times, ...columns, failures]),
    box,
  );
  const observer = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
  observer.observe(box);
  return () => {
    observer.disconnect();
    plot.destroy();
  };
}

/**
 * @param {PlottedSeries["points"]} points
 * @param {readonly number[]} times
 * @returns {(number | null | undefined)[]} a value for each time, the largest where there are several; null is a gap
 */
function columnOf(points, times) {
  /** @type {Map<number, number | null>} */
  const values = new Map();
  for (const { timeMs, value } of points) {
    const other = values.get(timeMs) ?? null;
    values.set(timeMs, value === null || other === null ? value ?? other : Math.max(value, other));
  }
  return times.map((timeMs) => {
    const value = values.get(timeMs);
    return value === undefined ? undefined : value === null ? null : Math.max(LEAST_MS, value);
  });
}

/**
 * Whole powers of ten around the values.
 *
 * @param {unknown} _plot
 * @param {number | null} least
 * @param {number | null} most
 * @returns {[number, number]}
 */
function decades(_plot, least, most) {
  const low = 10 ** Math.floor(Math.log10(least ?? LEAST_MS));
  const high = 10 ** Math.ceil(Math.log10((most ?? 1) * 1.0001));
  return [low, Math.max(high, low * 10)];
}

/**
 * @param {(name: string) => string} colour
 * @returns {import("uplot").Axis[]}
 */
function axesOf(colour) {
  const common = {
    stroke: colour("--muted"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: colour("--grid"), width: 1 },
    ticks: { show: false },
    gap: 6,
  };
  const isPowerOfTen = (/** @type {number} */ ms) =>
    Math.abs(Math.log10(ms) - Math.round(Math.log10(ms))) < 1e-9;
  return [
    { ...common, size: 28, space: 90, values: (_plot, splits) => timesOf(splits) },
    {
      ...common,
      size: 62,
      values: (_plot, splits) => splits.map((ms) => isPowerOfTen(ms) ? duration(ms) : ""),
    },
  ];
}

/**
 * Times of day, without seconds where they are all alike.
 *
 * @param {readonly number[]} timesMs
 */
function timesOf(timesMs) {
  const length = timesMs.every((timeMs) => timeMs % 60_000 === 0) ? 5 : 8;
  return timesMs.map((timeMs) => timeOfDay(timeMs).slice(0, length));
}
