/**
 * Line charts as SVG: panels beside each other on one vertical scale, each line with a colour, a marker and a stroke of its own and its
 * name at its end, so that they are told apart without colours, too. A chart carries its own ground, follows the reader's light or dark
 * theme, and names no font that a reader may lack.
 *
 * @module
 */
import { escapeXml, type Scale, ticksOf, yScaleOf } from "./scale.ts";

/** Whose line it is: colour and marker. */
export type LineKind = "kproxy" | "peer" | "bare";

/** One line of a panel. */
export interface Line {
  readonly kind: LineKind;
  /** A part of what the kind's full line shows: drawn thinner, with gaps. */
  readonly isPart: boolean;
  /** Stands at the line's end. */
  readonly name: string;
  /** Number of Services, and the value, in order. */
  readonly points: readonly (readonly [x: number, y: number])[];
  /** Whether values stand at its points, the highest of a size above and the lowest below; the end says its own anyway. */
  readonly hasValues: boolean;
}

/** What stands beside others on the same scale. */
export interface Panel {
  readonly title: string;
  readonly lines: readonly Line[];
}

/** A whole chart. */
export interface LineChart {
  readonly title: string;
  /** One line on what is measured, from where to where. */
  readonly subtitle: string;
  /** Written behind numbers. */
  readonly format: (value: number) => string;
  readonly yScale: "log" | "linear";
  readonly panels: readonly Panel[];
}

const WIDTH = 1000;
const LEFT = 80;
const TOP = 98;
const PLOT_WIDTH = 270;
const PLOT_HEIGHT = 240;
/** Between the plots: where the lines' names stand. */
const NAMES_WIDTH = 190;
const BOTTOM = 52;
const HEIGHT = TOP + PLOT_HEIGHT + BOTTOM;
/** Room inside of a plot at both sides. */
const INSET = 26;
const NAME_SPACING = 16;
const MARKER = 4.5;

const STYLE = `<style>
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .panel { font-size: 13px; font-weight: 600; }
  .quiet { fill: #59636e; }
  .name { font-weight: 600; }
  .value { font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
  .ground { fill: #ffffff; stroke: #d1d9e0; }
  .grid { stroke: #d1d9e0; }
  polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }
  .part { stroke-width: 1.5; stroke-dasharray: 5 5; }
  .marker { stroke: #ffffff; stroke-width: 1.5; }
  .kproxy { fill: #0969da; }
  .peer { fill: #bc4c00; }
  .bare { fill: #59636e; }
  polyline.kproxy { fill: none; stroke: #0969da; }
  polyline.peer { fill: none; stroke: #bc4c00; }
  polyline.bare { fill: none; stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 1 5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .value { stroke: #0d1117; }
    .ground { fill: #0d1117; stroke: #3d444d; }
    .grid { stroke: #2b323b; }
    .marker { stroke: #0d1117; }
    .kproxy { fill: #4493f8; }
    .peer { fill: #f0883e; }
    .bare { fill: #9198a1; }
    polyline.kproxy { fill: none; stroke: #4493f8; }
    polyline.peer { fill: none; stroke: #f0883e; }
    polyline.bare { fill: none; stroke: #9198a1; }
  }
</style>`;

/** The chart as a file. */
export function lineChartSvg(chart: LineChart): string {
  const values = chart.panels.flatMap(({ lines }) => lines.flatMap(({ points }) => points.map(([, y]) => y)));
  const y = yScaleOf(chart.yScale, values, TOP + PLOT_HEIGHT, TOP);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-labelledby="title desc">`,
    `<title id="title">${escapeXml(chart.title)}</title>`,
    `<desc id="desc">${escapeXml(description(chart))}</desc>`,
    STYLE,
    `<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${HEIGHT - 1}" rx="6"/>`,
    `<text class="title" x="20" y="30">${escapeXml(chart.title)}</text>`,
    `<text class="quiet" x="20" y="50">${escapeXml(chart.subtitle)}</text>`,
    ...chart.panels.map((panel, index) =>
      panelSvg(chart, panel, LEFT + index * (PLOT_WIDTH + NAMES_WIDTH), y, index === 0)
    ),
    "</svg>",
    "",
  ].join("\n");
}

function panelSvg(chart: LineChart, panel: Panel, left: number, y: Scale, isFirst: boolean): string {
  const sizes = [...new Set(panel.lines.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) =>
    a - b
  );
  const allSizes = chart.panels.flatMap(({ lines }) => lines.flatMap(({ points }) => points.map(([x]) => x)));
  const [smallest, largest] = [Math.min(...allSizes), Math.max(...allSizes)];
  const share = (size: number): number =>
    largest === smallest ? 0 : Math.log(size / smallest) / Math.log(largest / smallest);
  const x = (size: number): number => round(left + INSET + share(size) * (PLOT_WIDTH - 2 * INSET));
  const bottom = TOP + PLOT_HEIGHT;
  return [
    `<text class="panel" x="${left}" y="${TOP - 16}">${escapeXml(panel.title)}</text>`,
    ...ticksOf(y).map((tick) => {
      const at = round(y.at(tick));
      const line = `<line class="grid" x1="${left}" y1="${at}" x2="${left + PLOT_WIDTH}" y2="${at}"/>`;
      const label = `<text class="quiet" x="${left - 8}" y="${at + 4}" text-anchor="end">${
        chart.format(tick)
      }</text>`;
      return isFirst ? `${line}${label}` : line;
    }),
    ...sizes.map((size) =>
      `<text class="quiet" x="${x(size)}" y="${bottom + 20}" text-anchor="middle">${
        size.toLocaleString("en")
      }</text>`
    ),
    `<text class="quiet" x="${left + PLOT_WIDTH / 2}" y="${
      bottom + 38
    }" text-anchor="middle">Services × 10 endpoints</text>`,
    ...panel.lines.map((line) => lineSvg(line, x, y)),
    ...sizes.flatMap((size) => valuesSvg(panel, size, chart.format, x(size), y)),
    ...namesSvg(panel, chart.format, x, y),
  ].join("\n");
}

function lineSvg({ kind, isPart, points }: Line, x: (size: number) => number, y: Scale): string {
  const at = points.map(([size, value]) => [x(size), round(y.at(value))] as const);
  const path = at.map(([left, top]) => `${left},${top}`).join(" ");
  return [
    `<polyline class="${isPart ? `${kind} part` : kind}" points="${path}"/>`,
    ...at.map(([left, top]) => marker(kind, left, top, isPart ? MARKER - 1 : MARKER)),
  ].join("\n");
}

/** A circle, a square or a triangle. */
function marker(kind: LineKind, x: number, y: number, size: number): string {
  const name = `class="marker ${kind}"`;
  if (kind === "kproxy") return `<circle ${name} cx="${x}" cy="${y}" r="${size + 0.5}"/>`;
  if (kind === "peer") {
    return `<rect ${name} x="${round(x - size)}" y="${round(y - size)}" width="${2 * size}" height="${
      2 * size
    }"/>`;
  }
  const points = [[x, y - size - 1], [x + size + 1, y + size], [x - size - 1, y + size]];
  return `<polygon ${name} points="${points.map((point) => point.map(round).join(",")).join(" ")}"/>`;
}

/** The highest and the lowest value of a size; those of a line's last point stand beside its name. */
function valuesSvg(
  { lines }: Panel,
  size: number,
  format: LineChart["format"],
  x: number,
  y: Scale,
): string[] {
  const values = lines.filter(({ hasValues }) => hasValues)
    .flatMap(({ points }) => points.slice(0, -1).filter(([at]) => at === size).map(([, value]) => value))
    .sort((a, b) => a - b);
  const [lowest, highest] = [values[0], values.at(-1)];
  if (lowest === undefined || highest === undefined) return [];
  const places = lines.flatMap(({ points }) =>
    points.filter(([at]) => at === size).map(([, value]) => y.at(value))
  );
  const text = (value: number, side: "above" | "below"): string => {
    const top = round(y.at(value) + (side === "above" ? -11 : 19));
    return `<text class="value" x="${x}" y="${top}" text-anchor="middle">${format(value)}</text>`;
  };
  if (lowest === highest) return [text(highest, "above")];
  // Below, unless another line's point is there, and none above.
  const place = y.at(lowest);
  const isNear = (least: number, most: number): boolean =>
    places.some((other) => other - place > least && other - place < most);
  const side = isNear(0, 28) && !isNear(-40, 0) ? "above" : "below";
  return [text(highest, "above"), text(lowest, side)];
}

/** Names and last values, moved apart where they would stand on each other. */
function namesSvg(
  { lines }: Panel,
  format: LineChart["format"],
  x: (size: number) => number,
  y: Scale,
): string[] {
  const ends = lines.flatMap(({ name, points }) => {
    const last = points.at(-1);
    return last === undefined
      ? []
      : [{ name, value: last[1], left: x(last[0]) + 12, top: y.at(last[1]) + 4 }];
  }).sort((a, b) => a.top - b.top);
  const tops = apart(ends.map(({ top }) => top), TOP + 4, TOP + PLOT_HEIGHT + 4);
  return ends.map(({ name, value, left }, index) =>
    `<text class="value" x="${left}" y="${round(tops[index] ?? 0)}"><tspan class="name">${
      escapeXml(name)
    }</tspan> ${format(value)}</text>`
  );
}

/** Ascending places, moved as little as it takes for them to have room, between two bounds. */
export function apart(places: readonly number[], least: number, most: number): number[] {
  const moved: number[] = [];
  for (const place of places) moved.push(Math.max(place, least, (moved.at(-1) ?? -Infinity) + NAME_SPACING));
  // What went too far down pushes the others up again.
  let bound = most;
  for (let index = moved.length - 1; index >= 0; index--) {
    const place = Math.min(moved[index] ?? bound, bound);
    moved[index] = place;
    bound = place - NAME_SPACING;
  }
  return moved;
}

function description({ panels, format }: LineChart): string {
  return panels.map(({ title, lines }) =>
    `${title}: ${
      lines.map(({ name, points }) =>
        `${name} ${points.map(([x, y]) => `${format(y)} at ${x.toLocaleString("en")}`).join(", ")}`
      ).join("; ")
    }.`
  ).join(" ");
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
