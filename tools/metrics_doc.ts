/**
 * The list of metrics of `docs/metrics.md`, read off the registries that the servers print.
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

/** The modes that a node can run. */
const MODES = ["iptables", "ipvs", "nftables", "userspace"] as const;

/** Metrics of all modes, with what must be so for them to be there. */
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

/** One metric, and when it is there. */
export interface MetricRow {
  readonly name: string;
  /** `counter`, `gauge` or `histogram`. */
  readonly type: string;
  readonly labels: readonly string[];
  /** Without the stability, such as `[ALPHA]`. */
  readonly help: string;
  /** What must be so for it to be there; empty: nothing. */
  readonly condition: string;
}

/** What a metric of `prom-client` is beside what its types tell. */
interface MetricParts {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly labelNames: readonly string[];
}

/** Every metric of `/metrics`, by name. */
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

/** Every metric of `/metrics/slis`, by name. */
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
  // The types of prom-client leave out what each metric has.
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
