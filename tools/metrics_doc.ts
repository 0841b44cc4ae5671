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
  ServerMetrics,
  ServingMetrics,
  SliMetrics,
  SnapshotMetrics,
} from "../lib/observe/metrics_kproxy.ts";
import { ProxyMetrics } from "../lib/observe/metrics.ts";
import { Registry } from "../lib/observe/prom_client.ts";

/** The modes that a node can run. */
const MODES = ["iptables", "ipvs", "nftables", "userspace"] as const;

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
    ...rowsOf(programRegistry(), () => ""),
    ...rowsOf(snapshotRegistry(), () => "a snapshot is configured"),
    ...rowsOf(reloadRegistry(), () => "a configuration file that kproxy follows"),
    ...rowsOf(servingRegistry(), () => "`kproxy.serving.tlsCertFile`"),
    ...rowsOf(trafficRegistry(), () => "mode nftables, `--traffic-counters`"),
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

function programRegistry(): Registry {
  const registry = new Registry();
  addProgramMetrics(registry, { version: "0.0.0", featureGates: {}, startMs: 0 });
  addLogMetrics(registry, () => 0);
  new ServerMetrics(registry);
  return registry;
}

function snapshotRegistry(): Registry {
  const registry = new Registry();
  new SnapshotMetrics().addTo(registry);
  return registry;
}

function reloadRegistry(): Registry {
  const registry = new Registry();
  new ReloadRecord(0).addTo(registry);
  return registry;
}

function trafficRegistry(): Registry {
  const registry = new Registry();
  addTrafficMetrics(registry, () => Promise.resolve([]));
  return registry;
}

function servingRegistry(): Registry {
  const registry = new Registry();
  new ServingMetrics(registry);
  return registry;
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
  return [
    "| Metric | Type | Labels | Only with | What it says |",
    "| --- | --- | --- | --- | --- |",
    ...rows.map(({ name, type, labels, condition, help }) =>
      `| \`${name}\` | ${type} | ${
        labels.map((label) => `\`${label}\``).join(", ")
      } | ${condition} | ${help} |`
    ),
  ].join("\n");
}
