/**
 * The charts that show kproxy beside kube-proxy and the bare tool, from `docs/records/proxies.json`.
 *
 * @module
 */
import { init } from "echarts";
import type { ProxiesRow, ProxyMode, ProxySamples } from "./records.ts";
import { isMeasured, median } from "./samples.ts";

interface Line {
  readonly name: string;
  readonly samples: (row: ProxiesRow) => readonly number[] | undefined;
  readonly color: string;
  readonly symbol: string;
  readonly dash?: "dashed" | "dotted";
}

interface Chart {
  readonly file: string;
  readonly title: string;
  readonly unit: string;
  /** What the unit is of the samples' own. */
  readonly per: number;
  readonly scale: "log" | "value";
  readonly lines: readonly Line[];
}

const MODES: readonly ProxyMode[] = ["nftables", "iptables"];
const SIZE = { width: 1000, height: 400 };
const PANELS = [{ left: 70, width: 390 }, { left: 560, width: 390 }];

const KPROXY = { name: "kproxy", color: "#0969da", symbol: "circle" };
const PEER = { name: "kube-proxy", color: "#bc4c00", symbol: "rect" };
const BARE = { name: "bare tool", color: "#59636e", symbol: "triangle", dash: "dotted" } as const;

function peerOf({ kubeProxy }: ProxiesRow): ProxySamples | undefined {
  return isMeasured(kubeProxy) ? kubeProxy : undefined;
}

/** One sample for both proxies and the bare tool. */
function beside(sample: "firstSyncMs" | "changeMs"): readonly Line[] {
  return [
    { ...KPROXY, samples: ({ kproxy }) => kproxy[sample] },
    { ...PEER, samples: (row) => peerOf(row)?.[sample] },
    { ...BARE, samples: ({ bare }) => bare[sample] },
  ];
}

const CHARTS: readonly Chart[] = [
  {
    file: "docs/first_sync.svg",
    title: "First sync: from the start of the process until 24 Services answer (median, logarithmic)",
    unit: "s",
    per: 1000,
    scale: "log",
    lines: beside("firstSyncMs"),
  },
  {
    file: "docs/endpoint_replaced.svg",
    title:
      "One endpoint replaced: from the change in the API until the kernel holds it (median, logarithmic)",
    unit: "ms",
    per: 1,
    scale: "log",
    lines: beside("changeMs"),
  },
  {
    file: "docs/memory.svg",
    title: "Memory after the changes: resident, and anonymous (median)",
    unit: "MB",
    per: 1,
    scale: "value",
    lines: [
      { ...KPROXY, samples: ({ kproxy }) => kproxy.residentMb },
      { ...PEER, samples: (row) => peerOf(row)?.residentMb },
      { ...KPROXY, name: "kproxy, anonymous", dash: "dashed", samples: ({ kproxy }) => kproxy.anonymousMb },
      { ...PEER, name: "kube-proxy, anonymous", dash: "dashed", samples: (row) => peerOf(row)?.anonymousMb },
    ],
  },
];

/** A line through the medians of one mode. */
function series({ per, unit }: Chart, line: Line, rows: readonly ProxiesRow[], panel: number): object {
  const data = rows.flatMap((row) => {
    const samples = line.samples(row);
    return samples === undefined
      ? []
      : [[String(row.services), Number((median(samples) / per).toPrecision(2))]];
  });
  return {
    type: "line",
    name: line.name,
    xAxisIndex: panel,
    yAxisIndex: panel,
    data,
    symbol: line.symbol,
    symbolSize: 9,
    color: line.color,
    lineStyle: { width: 2, type: line.dash ?? "solid" },
    label: {
      show: line.dash === undefined,
      position: line.symbol === PEER.symbol ? "top" : "bottom",
      formatter: `{@[1]} ${unit}`,
      color: line.color,
    },
    silent: true,
  };
}

function draw(chart: Chart, rows: readonly ProxiesRow[]): string {
  const panels = MODES.map((mode) => rows.filter((row) => row.mode === mode));
  const svg = init(null, null, { renderer: "svg", ssr: true, ...SIZE });
  svg.setOption({
    animation: false,
    backgroundColor: "#ffffff",
    title: [
      { text: chart.title, left: 20, top: 12, textStyle: { fontSize: 15 } },
      ...MODES.map((mode, index) => ({
        text: `Mode ${mode}`,
        left: PANELS[index]?.left,
        top: 62,
        textStyle: { fontSize: 13 },
      })),
    ],
    legend: { top: 38, left: 20, itemGap: 24 },
    grid: PANELS.map((panel) => ({ ...panel, top: 110, bottom: 60 })),
    xAxis: panels.map((of, gridIndex) => ({
      gridIndex,
      type: "category",
      data: of.map(({ services }) => String(services)),
      name: "Services × 10 endpoints",
      nameLocation: "middle",
      nameGap: 30,
    })),
    yAxis: panels.map((_, gridIndex) => ({ gridIndex, type: chart.scale, name: chart.unit })),
    series: panels.flatMap((of, panel) => chart.lines.map((line) => series(chart, line, of, panel))),
  });
  const text = svg.renderToSVGString();
  svg.dispose();
  return `${text}\n`;
}

/** The charts' files, relative to the project's folder, with what they hold. */
export function proxyCharts(rows: readonly ProxiesRow[]): Map<string, string> {
  return new Map(CHARTS.map((chart) => [chart.file, draw(chart, rows)]));
}
