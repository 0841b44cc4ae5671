/**
 * The charts that show kproxy beside kube-proxy and the bare tool, from `docs/records/proxies.json`.
 *
 * @module
 */
import { type Line, type LineChart, lineChartSvg, type Panel } from "../charts/line_chart.ts";
import type { ProxiesRow, ProxyMode, ProxySamples } from "./records.ts";
import { isMeasured, median } from "./samples.ts";

/** The charts' files, relative to the project's folder, with what they hold; none of no rows. */
export function proxyCharts(rows: readonly ProxiesRow[]): Map<string, string> {
  if (rows.length === 0) return new Map();
  return new Map([
    ["docs/first_sync.svg", lineChartSvg(firstSyncChart(rows))],
    ["docs/endpoint_replaced.svg", lineChartSvg(changeChart(rows))],
    ["docs/memory.svg", lineChartSvg(memoryChart(rows))],
  ]);
}

const MODES: readonly ProxyMode[] = ["nftables", "iptables"];

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

/** A panel for each mode. */
function panelsOf(
  rows: readonly ProxiesRow[],
  lines: (rows: readonly ProxiesRow[]) => readonly Line[],
): Panel[] {
  return MODES.map((mode) => ({
    title: mode === "iptables" ? "Mode iptables (nft)" : "Mode nftables",
    lines: lines(rows.filter((row) => row.mode === mode)).filter(({ points }) => points.length > 0),
  })).filter(({ lines }) => lines.length > 0);
}

/** A line through what was measured. */
function lineOf(
  line: Omit<Line, "points" | "isPart">,
  rows: readonly ProxiesRow[],
  samples: (row: ProxiesRow) => readonly number[] | undefined,
  unit = 1,
  isPart = false,
): Line {
  const points = rows.flatMap((row) => {
    const of = samples(row);
    return of === undefined ? [] : [[row.services, median(of) / unit] as const];
  });
  return { ...line, isPart, points };
}

function peerOf({ kubeProxy }: ProxiesRow): ProxySamples | undefined {
  return isMeasured(kubeProxy) ? kubeProxy : undefined;
}

const BARE = { kind: "bare", name: "bare tool", hasValues: false } as const;
const PEER = { kind: "peer", name: "kube-proxy", hasValues: true } as const;
const KPROXY = { kind: "kproxy", name: "kproxy", hasValues: true } as const;

function firstSyncChart(rows: readonly ProxiesRow[]): LineChart {
  return {
    title: "First sync",
    subtitle:
      "From the start of the process until 24 Services answer connections, median; both scales logarithmic",
    format: seconds,
    yScale: "log",
    panels: panelsOf(rows, (of) => [
      lineOf(BARE, of, ({ bare }) => bare.firstSyncMs, 1000),
      lineOf(PEER, of, (row) => peerOf(row)?.firstSyncMs, 1000),
      lineOf(KPROXY, of, ({ kproxy }) => kproxy.firstSyncMs, 1000),
    ]),
  };
}

function changeChart(rows: readonly ProxiesRow[]): LineChart {
  return {
    title: "One endpoint replaced",
    subtitle: "From the change in the API until the kernel holds it, median; both scales logarithmic",
    format: milliseconds,
    yScale: "log",
    panels: panelsOf(rows, (of) => [
      lineOf(BARE, of, ({ bare }) => bare.changeMs),
      lineOf(PEER, of, (row) => peerOf(row)?.changeMs),
      lineOf(KPROXY, of, ({ kproxy }) => kproxy.changeMs),
    ]),
  };
}

function memoryChart(rows: readonly ProxiesRow[]): LineChart {
  return {
    title: "Memory",
    subtitle: "Resident after the changes, and the part of it that no file backs (anonymous), median",
    format: megabytes,
    yScale: "linear",
    panels: panelsOf(rows, (of) => [
      lineOf(
        { ...PEER, name: "kube-proxy, anonymous", hasValues: false },
        of,
        (row) => peerOf(row)?.anonymousMb,
        1,
        true,
      ),
      lineOf(
        { ...KPROXY, name: "kproxy, anonymous", hasValues: false },
        of,
        ({ kproxy }) => kproxy.anonymousMb,
        1,
        true,
      ),
      lineOf(PEER, of, (row) => peerOf(row)?.residentMb),
      lineOf(KPROXY, of, ({ kproxy }) => kproxy.residentMb),
    ]),
  };
}
