/**
 * The charts and the table of `docs/benchmarks.md` that show kproxy beside kube-proxy and the bare tool, from the runs of `docs/figures/`.
 *
 * @module
 */
import { type Line, type LineChart, lineChartSvg, type Panel } from "./line_chart.ts";
import { measuredRuns, type ScaleRun } from "./scale_figures.ts";

/** The charts' files, relative to the project's folder, with what they hold. */
export function scaleCharts(runs: readonly ScaleRun[] = measuredRuns()): Map<string, string> {
  return new Map([
    ["docs/first_sync.svg", lineChartSvg(firstSyncChart(runs))],
    ["docs/endpoint_replaced.svg", lineChartSvg(touchChart(runs))],
    ["docs/memory.svg", lineChartSvg(memoryChart(runs))],
  ]);
}

const MODES: readonly ScaleRun["mode"][] = ["nftables", "iptables"];

/** `0.45 s`, `8.3 s`, `29 s`. */
function seconds(value: number): string {
  return `${Number(value.toPrecision(2))} s`;
}

/** `4.6 ms`, `241 ms`, `1,847 ms`. */
function milliseconds(value: number): string {
  return `${(value < 10 ? Number(value.toPrecision(2)) : Math.round(value)).toLocaleString("en")} ms`;
}

function megabytes(value: number): string {
  return `${Math.round(value)} MB`;
}

/** What of kproxy the charts show: the bundle, if it was measured wherever the source was. */
export function chartedProgram(runs: readonly ScaleRun[]): ScaleRun["program"] {
  const sizesOf = (program: ScaleRun["program"]): Set<string> =>
    new Set(runs.filter((run) => run.program === program).map(({ mode, services }) => `${mode} ${services}`));
  return sizesOf("source").isSubsetOf(sizesOf("bundle")) ? "bundle" : "source";
}

/** A panel for each mode, with the lines that `lines` makes of the runs of {@linkcode chartedProgram}. */
function panelsOf(runs: readonly ScaleRun[], lines: (runs: readonly ScaleRun[]) => readonly Line[]): Panel[] {
  const program = chartedProgram(runs);
  return MODES.map((mode) => ({
    title: mode === "iptables" ? "Mode iptables (nft)" : "Mode nftables",
    lines: lines(runs.filter((run) => run.mode === mode && run.program === program)),
  }));
}

function lineOf(
  line: Omit<Line, "points">,
  runs: readonly ScaleRun[],
  value: (run: ScaleRun) => number,
): Line {
  return { ...line, points: runs.map((run) => [run.services, value(run)] as const) };
}

/** kube-proxy, kproxy and the bare tool, by one quantity that all of them have. */
function threeLines(
  runs: readonly ScaleRun[],
  value: (of: ScaleRun["bare"]) => number,
): Line[] {
  const isPart = false;
  return [
    lineOf({ kind: "bare", isPart, name: "bare tool", hasValues: false }, runs, ({ bare }) => value(bare)),
    lineOf({ kind: "peer", isPart, name: "kube-proxy", hasValues: true }, runs, ({ peer }) => value(peer)),
    lineOf({ kind: "kproxy", isPart, name: "kproxy", hasValues: true }, runs, ({ kproxy }) => value(kproxy)),
  ];
}

function firstSyncChart(runs: readonly ScaleRun[]): LineChart {
  return {
    title: "First sync",
    subtitle:
      "From the start of the process until 24 Services answer connections, median; both scales logarithmic",
    format: seconds,
    yScale: "log",
    panels: panelsOf(runs, (of) => threeLines(of, ({ firstSyncSeconds }) => firstSyncSeconds)),
  };
}

function touchChart(runs: readonly ScaleRun[]): LineChart {
  return {
    title: "One endpoint replaced",
    subtitle: "From the change in the API until the kernel holds it, median; both scales logarithmic",
    format: milliseconds,
    yScale: "log",
    panels: panelsOf(runs, (of) => threeLines(of, ({ touchMs }) => touchMs.p50)),
  };
}

function memoryChart(runs: readonly ScaleRun[]): LineChart {
  return {
    title: "Memory",
    subtitle: "Resident after all changes, and the part of it that no file backs (anonymous)",
    format: megabytes,
    yScale: "linear",
    panels: panelsOf(runs, (of) => [
      lineOf(
        { kind: "peer", isPart: true, name: "kube-proxy, anonymous", hasValues: false },
        of,
        ({ peer }) => peer.anonymousMb,
      ),
      lineOf(
        { kind: "kproxy", isPart: true, name: "kproxy, anonymous", hasValues: false },
        of,
        ({ kproxy }) => kproxy.anonymousMb,
      ),
      lineOf(
        { kind: "peer", isPart: false, name: "kube-proxy", hasValues: true },
        of,
        ({ peer }) => peer.residentMb,
      ),
      lineOf(
        { kind: "kproxy", isPart: false, name: "kproxy", hasValues: true },
        of,
        ({ kproxy }) => kproxy.residentMb,
      ),
    ]),
  };
}

/** The table of all runs, from the source as well. */
export function scaleTable(runs: readonly ScaleRun[] = measuredRuns()): string {
  const three = (run: ScaleRun, text: (of: ScaleRun["bare"]) => string): string =>
    [run.kproxy, run.peer, run.bare].map(text).join(" · ");
  const two = (run: ScaleRun, text: (of: ScaleRun["peer"]) => string): string =>
    [run.kproxy, run.peer].map(text).join(" · ");
  const rows = runs.map((run) => [
    run.mode,
    `${run.services.toLocaleString("en")} × ${run.endpoints}`,
    run.program,
    three(run, ({ firstSyncSeconds }) => firstSyncSeconds.toFixed(2)),
    three(run, ({ touchMs }) => `${touchMs.p50.toFixed(1)} / ${touchMs.max.toFixed(0)}`),
    two(run, ({ residentMb }) => residentMb.toFixed(0)),
    two(run, ({ anonymousMb }) => anonymousMb.toFixed(0)),
    two(run, ({ peakMb }) => peakMb.toFixed(0)),
    run.load.toFixed(1),
  ]);
  const versions = [...new Set(runs.map(({ version }) => version))].join(", ");
  const days = [...new Set(runs.map(({ measured }) => measured))].join(", ");
  const head = [
    "mode",
    "size",
    "kproxy from",
    "first sync, s",
    "endpoint replaced, p50 / max, ms",
    "resident, MB",
    "anonymous, MB",
    "peak, MB",
    "load",
  ];
  return [
    `kproxy · kube-proxy (${versions}) · bare tool, measured on ${days}; the charts show kproxy from the ${
      chartedProgram(runs)
    }:`,
    "",
    ...[head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`),
  ].join("\n");
}
