/**
 * The measured figures of `docs/benchmarks.md`, as the README shows them: one table, and one chart in `docs/`.
 *
 * @module
 */
import { ROOT } from "./project_files.ts";

/** What was measured in one mode at one size: kproxy beside the bare tool that is fed the same rules. */
export interface Figure {
  readonly mode: "iptables" | "nftables";
  /** `1,000 × 10`: Services and endpoints of each. */
  readonly size: string;
  /** Start of the process to all rules in the kernel, in seconds. */
  readonly firstSync: Pair;
  /** The change in the API to the kernel's own event for it, median, in milliseconds. */
  readonly replaced: Pair;
}

/** One quantity of kproxy's and of the bare tool's, in the unit of its field, with as many digits as the page has. */
export interface Pair {
  readonly kproxy: string;
  readonly bare: string;
}

/** Where the chart is, relative to the project's folder. */
export const CHART_FILE = "docs/edit_to_kernel.svg";

const SOURCE = "docs/benchmarks.md";
const NUMBER = String.raw`([\d.]+)`;
/** `| first sync, median of 7 | 0.81 s | 0.32 s |…`. */
const FIRST_SYNC = new RegExp(String.raw`^\| first sync[^|]*\| ${NUMBER} s *\| ${NUMBER} s *\|`, "m");
/** `| one endpoint replaced, p50 / p99, 100 times | 16.5 / 31.3 ms | 14.3 / 20.7 ms |…`. */
const REPLACED = new RegExp(
  String.raw`^\| one endpoint replaced, p50[^|]*\| ${NUMBER} /[^|]*ms *\| ${NUMBER} /[^|]*ms *\|`,
  "m",
);
/** `| 1,000 × 10 | 0.53 s / 0.16 s | 3.1 / 2.9 ms (1.08 ×), of 100 |…`. */
const NFTABLES_ROW = new RegExp(
  String.raw`^\| ([\d,]+ × \d+) *\| ${NUMBER} s / ${NUMBER} s[^|]*\| ${NUMBER} / ${NUMBER} ms`,
  "gm",
);

/**
 * The figures of a text of the form of `docs/benchmarks.md`, in its order. Mode ipvs is left out: it was measured in a user-mode
 * Linux, where only ratios mean anything.
 *
 * @throws {SyntaxError} if a mode has none, or a table lacks one
 */
export function parseFigures(text: string): Figure[] {
  const iptables = chapter(text, "iptables mode").split(/^## /m).flatMap((part): Figure[] => {
    const [, services, endpoints] = /^([\d,]+) Services × (\d+) endpoints$/m.exec(part) ?? [];
    if (services === undefined) return [];
    const size = `${services} × ${endpoints}`;
    return [{
      mode: "iptables",
      size,
      firstSync: pairOf(FIRST_SYNC.exec(part), size),
      replaced: pairOf(REPLACED.exec(part), size),
    }];
  });
  const nftables = [...chapter(text, "nftables mode").matchAll(NFTABLES_ROW)].map(
    ([, size = "", firstSync = "", bareFirstSync = "", replaced = "", bareReplaced = ""]): Figure => ({
      mode: "nftables",
      size,
      firstSync: { kproxy: firstSync, bare: bareFirstSync },
      replaced: { kproxy: replaced, bare: bareReplaced },
    }),
  );
  if (iptables.length === 0 || nftables.length === 0) throw new SyntaxError(`${SOURCE} lacks figures`);
  return [...iptables, ...nftables];
}

/** The text below a heading of the first level, up to the next one. */
function chapter(text: string, heading: string): string {
  const start = text.indexOf(`\n# ${heading}\n`);
  if (start < 0) throw new SyntaxError(`${SOURCE} has no chapter "${heading}"`);
  return text.slice(start + heading.length + 4).split(/^# /m, 1)[0] ?? "";
}

function pairOf(match: RegExpExecArray | null, size: string): Pair {
  if (match === null) throw new SyntaxError(`${SOURCE} lacks a figure of iptables mode at ${size}`);
  const [, kproxy = "", bare = ""] = match;
  return { kproxy, bare };
}

/** The figures that are measured now. */
export function measuredFigures(): Figure[] {
  return parseFigures(Deno.readTextFileSync(`${ROOT}/${SOURCE}`));
}

/** The README's table of figures. */
export function figuresMarkdown(figures: readonly Figure[] = measuredFigures()): string {
  return [
    "| Mode | Services × endpoints | First sync: kproxy | bare tool | One endpoint replaced: kproxy | bare tool |",
    "| --- | --: | --: | --: | --: | --: |",
    ...figures.map(({ mode, size, firstSync, replaced }) =>
      `| ${mode} | ${size} | ${firstSync.kproxy} s | ${firstSync.bare} s | ${replaced.kproxy} ms | ${replaced.bare} ms |`
    ),
  ].join("\n");
}

const WIDTH = 760;
const LEFT = 190;
const RIGHT = 70;
const TOP = 74;
const BAR = 13;
const GROUP = 2 * BAR + 16;

/**
 * The chart: for each mode and size two bars, kproxy's and the bare tool's, from the change in the API to the kernel. It carries its
 * own background, which follows the reader's light or dark theme, and names no font that a reader may lack.
 */
export function chartSvg(figures: readonly Figure[] = measuredFigures()): string {
  const longest = Math.max(
    ...figures.flatMap(({ replaced }) => [Number(replaced.kproxy), Number(replaced.bare)]),
  );
  const scale = (WIDTH - LEFT - RIGHT) / longest;
  const height = TOP + figures.length * GROUP + 8;
  const title = "From the change of an endpoint to the kernel's rules, median, in milliseconds";
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title desc">`,
    `<title id="title">${title}</title>`,
    `<desc id="desc">${description(figures)}</desc>`,
    STYLE,
    `<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="6"/>`,
    `<text class="title" x="20" y="30">${title}</text>`,
    `<rect class="kproxy" x="20" y="46" width="12" height="12"/><text x="38" y="56">kproxy</text>`,
    `<rect class="bare" x="110" y="46" width="12" height="12"/><text x="128" y="56">the bare tool, fed with the same rules</text>`,
    ...figures.map((figure, index) => barsOf(figure, TOP + index * GROUP, scale)),
    "</svg>",
    "",
  ].join("\n");
}

const STYLE = `<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .ground { fill: #ffffff; stroke: #d1d9e0; }
  .kproxy { fill: #0969da; }
  .bare { fill: #818b98; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .ground { fill: #0d1117; stroke: #3d444d; }
    .kproxy { fill: #4493f8; }
    .bare { fill: #6e7781; }
  }
</style>`;

function barsOf({ mode, size, replaced }: Figure, y: number, scale: number): string {
  const bar = (kind: keyof Pair, top: number): string => {
    const width = Math.round(Number(replaced[kind]) * scale * 10) / 10;
    return `<rect class="${kind}" x="${LEFT}" y="${top}" width="${width}" height="${BAR}"/>` +
      `<text x="${Math.round(LEFT + width + 6)}" y="${top + BAR - 2}">${replaced[kind]}</text>`;
  };
  return [
    `<text x="${LEFT - 12}" y="${y + BAR + 5}" text-anchor="end">${mode}, ${size}</text>`,
    bar("kproxy", y),
    bar("bare", y + BAR + 2),
  ].join("\n");
}

function description(figures: readonly Figure[]): string {
  return figures.map(({ mode, size, replaced }) =>
    `${mode}, ${size} endpoints: kproxy ${replaced.kproxy} ms, the bare tool ${replaced.bare} ms`
  ).join("; ") + ".";
}
