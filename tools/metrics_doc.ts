/**
 * List of metrics in `docs/metrics.md`, taken from the servers' registries.
 *
 * @module
 */
import { noRelayCounts } from "../lib/backend/userspace/forward/relay.ts";
import { addRelayMetrics } from "../lib/backend/userspace/node/metrics.ts";
import {
  addLogMetrics,
  addProgramMetrics,
  addTrafficMetrics,
  ReloadRecord,
  serverMetrics,
  ServingMetrics,
  SliMetrics,
  SnapshotMetrics,
} from "../lib/observe/metrics_kproxy.ts";
import { ProxyMetrics } from "../lib/observe/metrics.ts";
import { Registry } from "../lib/observe/prom_client.ts";
import { markdownTable } from "./markdown_table.ts";

/** Modes of a node. */
const MODES = ["iptables", "ipvs", "nftables", "userspace"] as const;

/** Metrics of all modes, by the condition under which they exist. */
const OTHERS: readonly (readonly [condition: string, add: (registry: Registry) => void])[] = [
  ["", (registry) => addProgramMetrics(registry, { version: "0.0.0", featureGates: {}, startMs: 0 })],
  ["", (registry) => addLogMetrics(registry, () => 0)],
  ["", (registry) => serverMetrics(registry)],
  ["a snapshot is configured", (registry) => new SnapshotMetrics().addTo(registry)],
  ["a configuration file that kproxy follows", (registry) => new ReloadRecord(0).addTo(registry)],
  ["`kproxy.serving.tlsCertFile`", (registry) => new ServingMetrics(registry)],
  [
    "mode nftables, `--traffic-counters`",
    (registry) => addTrafficMetrics(registry, () => Promise.resolve([])),
  ],
];

/** A metric, and its condition. */
export interface MetricRow {
  readonly name: string;
  /** Type: `counter`, `gauge` or `histogram`. */
  readonly type: string;
  readonly labels: readonly string[];
  /** Help text without the stability, such as `[ALPHA]`. */
  readonly help: string;
  /** Condition under which the metric exists; empty: always. */
  readonly condition: string;
}

/** Fields of a `prom-client` metric that its types lack. */
interface MetricParts {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly labelNames: readonly string[];
}

/** Metrics of `/metrics`, by name. */
export function metricRows(): MetricRow[] {
  const inMode = MODES.map((mode) => {
    const { registry } = new ProxyMetrics({ mode, readPacketCounts: () => Promise.resolve({}) });
    if (mode === "userspace") addRelayMetrics(registry, noRelayCounts);
    return { mode, names: new Set(partsOf(registry).map(({ name }) => name)), registry };
  });
  const modesOf = (name: string): string => {
    const modes = inMode.filter(({ names }) => names.has(name)).map(({ mode }) => mode);
    return modes.length === MODES.length ? "" : `mode ${modes.join(", ")}`;
  };
  const ofProxy = inMode.flatMap(({ registry }) => rowsOf(registry, modesOf));
  const rows = [
    ...ofProxy,
    ...OTHERS.flatMap(([condition, add]) => {
      const registry = new Registry();
      add(registry);
      return rowsOf(registry, () => condition);
    }),
  ];
  return [...new Map(rows.map((row) => [row.name, row])).values()].sort(byName);
}

/** Metrics of `/metrics/slis`, by name. */
export function sliRows(): MetricRow[] {
  return rowsOf(new SliMetrics(0).registry, () => "").sort(byName);
}

/** The Markdown tables: kube-proxy's, kproxy's own, the others of `/metrics`, and `/metrics/slis`. */
export function metricsMarkdown(): string {
  const rows = metricRows();
  const startingWith = (prefix: string): MetricRow[] => rows.filter(({ name }) => name.startsWith(prefix));
  const others = rows.filter(({ name }) => !/^(kubeproxy|kproxy)_/.test(name));
  return [
    ["## As kube-proxy has them", startingWith("kubeproxy_")] as const,
    ["## kproxy's own", startingWith("kproxy_")] as const,
    ["## The API server's client and the process", others] as const,
    ["## On `/metrics/slis`", sliRows()] as const,
  ].map(([heading, part]) => `${heading}\n\n${table(part)}`).join("\n\n");
}

function partsOf(registry: Registry): MetricParts[] {
  // The types of prom-client lack the fields of each metric.
  return registry.getMetricsAsArray() as unknown as MetricParts[];
}

function rowsOf(registry: Registry, conditionOf: (name: string) => string): MetricRow[] {
  return partsOf(registry).map(({ name, type, labelNames, help }) => {
    const words = help.replace(/^\[[A-Z]+\] /, "");
    return { name, type, labels: [...labelNames], help: words, condition: conditionOf(name) };
  });
}

function byName(a: MetricRow, b: MetricRow): number {
  return a.name < b.name ? -1 : 1;
}

function table(rows: readonly MetricRow[]): string {
  const cells = rows.map(({ name, type, labels, condition, help }) => [
    `\`${name}\``,
    type,
    labels.map((label) => `\`${label}\``).join(", "),
    condition,
    help,
  ]);
  return markdownTable(["Metric", "Type", "Labels", "Only with", "What it says"], cells);
}
