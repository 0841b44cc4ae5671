/**
 * Draws a picture of boxes and arrows as SVG: selectable text, readable on light and on dark ground.
 *
 * @module
 */

/** What a box stands for, which decides its colour. */
export type BoxKind = "outside" | "kernel" | "chain" | "data" | "code";

/** A line in a box: a name as it stands in the kernel or the code, and words about it. */
export interface BoxLine {
  readonly name?: string;
  readonly words?: string;
}

/** A box; sizes in pixels. */
export interface Box {
  readonly id: string;
  readonly kind: BoxKind;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  /** At the top, in bold; a name if `isName`. */
  readonly title: string;
  readonly isName?: boolean;
  readonly lines?: readonly BoxLine[];
  /** Words are right of the names, from here, seen from the box's left side. Absent: right behind each name. */
  readonly wordsAt?: number;
}

/** Where an arrow begins or ends: at a side of a box, in its middle or, with `at`, at a part of the side from 0 to 1. */
export interface ArrowEnd {
  readonly box: string;
  readonly side: "left" | "right" | "top" | "bottom";
  readonly at?: number;
}

/** An arrow: straight, through the middle of the smaller box unless an end says `at`, or with corners at the points of `via`. */
export interface Arrow {
  readonly from: ArrowEnd;
  readonly to: ArrowEnd;
  readonly via?: readonly (readonly [x: number, y: number])[];
  readonly isDashed?: boolean;
  /** Words beside it, their left end (or `labelAnchor`) at `labelAt`. */
  readonly label?: string;
  readonly labelAt?: readonly [x: number, y: number];
  readonly labelAnchor?: "start" | "middle" | "end";
}

/** A stripe behind boxes. */
export interface Band {
  readonly y: number;
  readonly height: number;
  readonly label: string;
  /** Lines below the label. */
  readonly words: readonly string[];
}

/** A whole picture. */
export interface Picture {
  /** Relative to the project's folder. */
  readonly file: string;
  readonly title: string;
  /** What it shows, for those who do not see it. */
  readonly description: string;
  readonly width: number;
  readonly height: number;
  /** Below the title. */
  readonly subtitle: string;
  readonly bands: readonly Band[];
  readonly boxes: readonly Box[];
  readonly arrows: readonly Arrow[];
  /** Kinds that the legend explains, in order. */
  readonly legend: readonly (readonly [kind: BoxKind, words: string])[];
}

const PADDING = 12;
const TITLE_HEIGHT = 30;
const LINE_HEIGHT = 18;
/** Where bands begin, and how wide their labels may be. */
const BAND_X = 16;
const LABEL_WIDTH = 132;

/** Widths of a character, on the safe side of the fonts that people have. */
const NAME_WIDTH = 7.4;
const WORD_WIDTH = 6.7;
const TITLE_WIDTH = 7.4;
const LABEL_CHARACTER = 6.4;

const STYLE = `
  text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
  .name { font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; }
  .title { font-size: 18px; font-weight: 600; }
  .subtitle, .words, .label { fill: #59636e; }
  .label { font-size: 11.5px; }
  .head { font-weight: 600; font-size: 12.5px; }
  .band-label { font-weight: 600; font-size: 12.5px; }
  .ground { fill: #ffffff; stroke: #d1d9e0; }
  .band { fill: #f6f8fa; }
  .arrow { fill: none; stroke: #59636e; stroke-width: 1.5; }
  .dashed { stroke-dasharray: 4 4; }
  .tip { fill: #59636e; }
  .outside { fill: #ffffff; stroke: #59636e; }
  .kernel { fill: #eaeef2; stroke: #818b98; }
  .chain { fill: #ddf4ff; stroke: #54aeff; }
  .data { fill: #dafbe1; stroke: #4ac26b; }
  .code { fill: #fbefff; stroke: #c297ff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .subtitle, .words, .label { fill: #9198a1; }
    .ground { fill: #0d1117; stroke: #3d444d; }
    .band { fill: #151b23; }
    .arrow { stroke: #9198a1; }
    .tip { fill: #9198a1; }
    .outside { fill: #0d1117; stroke: #9198a1; }
    .kernel { fill: #2a313c; stroke: #656c76; }
    .chain { fill: #0c2d6b; stroke: #388bfd; }
    .data { fill: #04260f; stroke: #2ea043; }
    .code { fill: #271052; stroke: #8957e5; }
    .chain-words, .code-words, .data-words { fill: #c8d1da; }
  }
`;

/** The height of a box, which follows from its lines. */
export function heightOf({ lines = [] }: Pick<Box, "lines">): number {
  return lines.length === 0 ? TITLE_HEIGHT + 4 : TITLE_HEIGHT + lines.length * LINE_HEIGHT + 6;
}

/** What does not fit in its place or lies over something else, in words. */
export function faultsOf({ width, height, boxes, bands, arrows, legend }: Picture): string[] {
  const faults: string[] = [];
  for (const box of boxes) {
    const bottom = box.y + heightOf(box);
    if (box.x < 0 || box.y < 0 || box.x + box.width > width || bottom > height) {
      faults.push(`${box.id} leaves the picture`);
    }
    if (textWidth(box) > box.width) {
      faults.push(`${box.id} is ${Math.ceil(textWidth(box) - box.width)} too narrow`);
    }
    for (const other of boxes) {
      if (other === box || other.id < box.id) continue;
      if (meets(rectangleOf(box), rectangleOf(other))) {
        faults.push(`${box.id} and ${other.id} lie over one another`);
      }
    }
    const band = bands.find(({ y, height }) => box.y < y + height && bottom > y);
    if (band !== undefined && (box.y < band.y || bottom > band.y + band.height)) {
      faults.push(`${box.id} leaves its band`);
    }
    if (band !== undefined && box.x < BAND_X + LABEL_WIDTH) {
      faults.push(`${box.id} covers the label of its band`);
    }
  }
  for (const { label, words } of bands) {
    for (const text of [label, ...words]) {
      if (text.length * LABEL_CHARACTER > LABEL_WIDTH) {
        faults.push(`"${text}" is too long for a band's label`);
      }
    }
  }
  faults.push(...faultsOfArrows(arrows, boxes));
  for (const [kind] of legend) if (!boxes.some((box) => box.kind === kind)) faults.push(`no box is ${kind}`);
  for (const { kind } of boxes) {
    if (!legend.some(([one]) => one === kind)) faults.push(`the legend lacks ${kind}`);
  }
  return [...new Set(faults)];
}

/** Arrows that lean, lead to nothing, or have words that something goes through. */
function faultsOfArrows(arrows: readonly Arrow[], boxes: readonly Box[]): string[] {
  const known = new Set(boxes.map(({ id }) => id));
  const lost = arrows.flatMap(({ from, to }) => [from.box, to.box]).filter((id) => !known.has(id));
  if (lost.length > 0) return lost.map((id) => `an arrow names ${id}`);
  const segments = arrows.flatMap((arrow) => {
    const points = pointsOf(arrow, boxes);
    return points.slice(1).map((end, index) => ({ arrow, start: points[index]!, end }));
  });
  const leaning = segments.filter(({ start, end }) => start[0] !== end[0] && start[1] !== end[1]);
  const faults = leaning.map(({ arrow }) => `the arrow from ${arrow.from.box} to ${arrow.to.box} leans`);
  for (const { from, label, labelAt, labelAnchor = "start" } of arrows) {
    if ((label === undefined) !== (labelAt === undefined)) {
      faults.push(`an arrow of ${from.box} has half a label`);
    }
    if (label === undefined || labelAt === undefined) continue;
    const width = label.length * LABEL_CHARACTER;
    const left = labelAt[0] - (labelAnchor === "end" ? width : labelAnchor === "middle" ? width / 2 : 0);
    const place: Rectangle = { left, right: left + width, top: labelAt[1] - 11, bottom: labelAt[1] + 3 };
    const isCovered = boxes.some((box) => meets(place, rectangleOf(box))) ||
      segments.some(({ start, end }) =>
        meets(place, {
          left: Math.min(start[0], end[0]),
          right: Math.max(start[0], end[0]),
          top: Math.min(start[1], end[1]),
          bottom: Math.max(start[1], end[1]),
        })
      );
    if (isCovered) faults.push(`"${label}" lies over something`);
  }
  return faults;
}

interface Rectangle {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

function rectangleOf(box: Box): Rectangle {
  return { left: box.x, right: box.x + box.width, top: box.y, bottom: box.y + heightOf(box) };
}

function meets(one: Rectangle, other: Rectangle): boolean {
  return one.left < other.right && other.left < one.right && one.top < other.bottom &&
      other.top < one.bottom ||
    // A line has no width.
    (other.left === other.right || other.top === other.bottom) && one.left <= other.right &&
      other.left <= one.right &&
      one.top <= other.bottom && other.top <= one.bottom;
}

function textWidth({ title, isName = false, lines = [], wordsAt }: Box): number {
  const widths = lines.map(({ name = "", words = "" }) => {
    const named = name.length * NAME_WIDTH;
    const begin = wordsAt === undefined ? (name === "" ? 0 : named + 8) : wordsAt - PADDING;
    return Math.max(named, words === "" ? 0 : begin + words.length * WORD_WIDTH) +
      (wordsAt !== undefined && named + PADDING > wordsAt && words !== "" ? 1_000 : 0);
  });
  return 2 * PADDING + Math.max(title.length * (isName ? NAME_WIDTH : TITLE_WIDTH), ...widths);
}

/**
 * The picture.
 *
 * @throws {RangeError} if something in it does not fit
 */
export function pictureSvg(picture: Picture): string {
  const faults = faultsOf(picture);
  if (faults.length > 0) throw new RangeError(`${picture.file}: ${faults.join("; ")}`);
  const { width, height, title, subtitle, description, bands, boxes, arrows, legend } = picture;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="title desc">
<title id="title">${escape(title)}</title>
<desc id="desc">${escape(description)}</desc>
<style>${STYLE}</style>
<rect class="ground" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
<text class="title" x="28" y="38">${escape(title)}</text>
<text class="subtitle" x="28" y="60">${escape(subtitle)}</text>
${bands.map((band) => bandSvg(band, width)).join("\n")}
${arrows.map((arrow) => arrowSvg(arrow, boxes)).join("\n")}
${boxes.map(boxSvg).join("\n")}
${arrows.map(labelSvg).filter((text) => text !== "").join("\n")}
${legendSvg(legend, height - 24)}
</svg>
`;
}

function bandSvg({ y, height, label, words }: Band, width: number): string {
  return [
    `<rect class="band" x="${BAND_X}" y="${y}" width="${width - 2 * BAND_X}" height="${height}" rx="8"/>`,
    `<text class="band-label" x="${BAND_X + 12}" y="${y + 24}">${escape(label)}</text>`,
    ...words.map((text, index) =>
      `<text class="label" x="${BAND_X + 12}" y="${y + 42 + index * 16}">${escape(text)}</text>`
    ),
  ].join("\n");
}

function boxSvg(box: Box): string {
  const { x, y, width, kind, title, isName = false, lines = [], wordsAt } = box;
  const height = heightOf(box);
  const radius = kind === "outside" ? 17 : 6;
  const middle = lines.length === 0;
  const head = `<text class="head${isName ? " name" : ""}" ${
    middle ? `x="${x + width / 2}" y="${y + 22}" text-anchor="middle"` : `x="${x + PADDING}" y="${y + 21}"`
  }>${escape(title)}</text>`;
  return [
    `<rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${height}" rx="${
      Math.min(radius, height / 2)
    }"/>`,
    head,
    ...lines.map((line, index) =>
      lineSvg(line, { x, y: y + TITLE_HEIGHT + 11 + index * LINE_HEIGHT, wordsAt, kind })
    ),
  ].join("\n");
}

function lineSvg(
  { name = "", words = "" }: BoxLine,
  at: {
    readonly x: number;
    readonly y: number;
    readonly wordsAt: number | undefined;
    readonly kind: BoxKind;
  },
): string {
  const left = at.x + PADDING;
  const wordsLeft = at.wordsAt === undefined
    ? (name === "" ? left : left + name.length * NAME_WIDTH + 8)
    : at.x + at.wordsAt;
  return (name === "" ? "" : `<text class="name" x="${left}" y="${at.y}">${escape(name)}</text>`) +
    (words === ""
      ? ""
      : `<text class="words ${at.kind}-words" x="${round(wordsLeft)}" y="${at.y}">${escape(words)}</text>`);
}

function pointsOf(
  { from, to, via = [] }: Arrow,
  boxes: readonly Box[],
): readonly (readonly [number, number])[] {
  return via.length === 0 ? straight(from, to, boxes) : [pointOf(from, boxes), ...via, pointOf(to, boxes)];
}

function arrowSvg(arrow: Arrow, boxes: readonly Box[]): string {
  const { isDashed = false } = arrow;
  const points = pointsOf(arrow, boxes);
  const [[lastX, lastY], [beforeX, beforeY]] = [points.at(-1)!, points.at(-2)!];
  const [alongX, alongY] = [Math.sign(lastX - beforeX), Math.sign(lastY - beforeY)];
  // The line ends where the tip begins, or it would show in front of it.
  const line = [...points.slice(0, -1), [lastX - 6 * alongX, lastY - 6 * alongY] as const];
  const tip = alongX !== 0 && alongY === 0
    ? `${lastX},${lastY} ${lastX - 8 * alongX},${lastY - 4.5} ${lastX - 8 * alongX},${lastY + 4.5}`
    : `${lastX},${lastY} ${lastX - 4.5},${lastY - 8 * alongY} ${lastX + 4.5},${lastY - 8 * alongY}`;
  const path = line.map(([x, y], index) => `${index === 0 ? "M" : "L"}${round(x)} ${round(y)}`).join(" ");
  return `<path class="arrow${
    isDashed ? " dashed" : ""
  }" d="${path}"/><polygon class="tip" points="${tip}"/>`;
}

/** Both ends on one vertical or horizontal line. */
function straight(
  from: ArrowEnd,
  to: ArrowEnd,
  boxes: readonly Box[],
): readonly (readonly [number, number])[] {
  const [start, end] = [pointOf(from, boxes), pointOf(to, boxes)];
  const isVertical = from.side === "top" || from.side === "bottom";
  const sizeOf = (id: string): number => {
    const box = boxes.find((one) => one.id === id);
    return box === undefined ? 0 : isVertical ? box.width : heightOf(box);
  };
  const isByStart = from.at !== undefined || to.at === undefined && sizeOf(from.box) <= sizeOf(to.box);
  const [x, y] = isByStart ? start : end;
  return isVertical ? [[x, start[1]], [x, end[1]]] : [[start[0], y], [end[0], y]];
}

function pointOf({ box: id, side, at = 0.5 }: ArrowEnd, boxes: readonly Box[]): readonly [number, number] {
  const box = boxes.find((one) => one.id === id);
  if (box === undefined) throw new RangeError(`There is no box ${id}`);
  const { x, y, width } = box;
  const height = heightOf(box);
  switch (side) {
    case "left":
      return [x, round(y + height * at)];
    case "right":
      return [x + width, round(y + height * at)];
    case "top":
      return [round(x + width * at), y];
    case "bottom":
      return [round(x + width * at), y + height];
  }
}

function labelSvg({ label, labelAt, labelAnchor = "start" }: Arrow): string {
  if (label === undefined || labelAt === undefined) return "";
  const anchor = labelAnchor === "start" ? "" : ` text-anchor="${labelAnchor}"`;
  return `<text class="label" x="${labelAt[0]}" y="${labelAt[1]}"${anchor}>${escape(label)}</text>`;
}

function legendSvg(legend: Picture["legend"], y: number): string {
  let x = 28;
  return legend.map(([kind, words]) => {
    const part = `<rect class="${kind}" x="${x}" y="${y - 10}" width="14" height="12" rx="3"/>` +
      `<text class="label" x="${x + 20}" y="${y}">${escape(words)}</text>`;
    x += 44 + Math.ceil(words.length * LABEL_CHARACTER);
    return part;
  }).join("\n");
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll(
    '"',
    "&quot;",
  );
}
