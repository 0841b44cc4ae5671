import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { ProxyMode } from "../config/types.ts";
import { type PacketCounts, ProxyMetrics } from "./metrics.ts";
import { metricsText } from "./prom_client.ts";

// prom-client reads the environment when it is imported; the tests themselves need no right.

Deno.test("a successful sync fills the duration of its kind, the timestamp and the programming latency", async () => {
  const metrics = new ProxyMetrics();
  metrics.observeSync("IPv4", {
    full: true,
    durationMs: 3,
    endMs: 1_000_500,
    triggerTimesMs: [999_900, 940_000],
  });
  const text = await metrics.registry.metrics();
  assertStringIncludes(
    text,
    'kubeproxy_sync_full_proxy_rules_duration_seconds_bucket{le="0.004",ip_family="IPv4"} 1',
  );
  assertStringIncludes(
    text,
    'kubeproxy_sync_full_proxy_rules_duration_seconds_bucket{le="0.002",ip_family="IPv4"} 0',
  );
  assertStringIncludes(text, 'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1');
  assertStringIncludes(text, 'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1000.5');
  assertStringIncludes(
    text,
    'kubeproxy_network_programming_duration_seconds_bucket{le="1",ip_family="IPv4"} 1',
  );
  assertStringIncludes(text, 'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 2');
  assertEquals(text.includes("partial_proxy_rules_duration_seconds_count{"), false);
});

Deno.test("the programming latency has kube-proxy's 81 buckets", async () => {
  const metrics = new ProxyMetrics();
  metrics.observeSync("IPv6", { full: false, durationMs: 1, endMs: 0, triggerTimesMs: [0] });
  const text = await metrics.registry.metrics();
  const buckets = [...text.matchAll(/network_programming_duration_seconds_bucket\{le="([^"]+)"/g)].map((m) =>
    m[1]
  );
  assertEquals(buckets.length, 82);
  assertEquals(buckets.slice(0, 4), ["0", "0.25", "0.5", "1"]);
  assertEquals(buckets.slice(-3), ["270", "300", "+Inf"]);
});

Deno.test("a failed partial sync counts twice, a failed full one once", async () => {
  const metrics = new ProxyMetrics();
  metrics.observeFailure("IPv4", { full: false, durationMs: 1 });
  metrics.observeFailure("IPv4", { full: true, durationMs: 1 });
  const text = await metrics.registry.metrics();
  assertStringIncludes(
    text,
    'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 2',
  );
  assertStringIncludes(
    text,
    'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv4"} 1',
  );
});

Deno.test("refused objects are counted under kproxy's own name", async () => {
  const metrics = new ProxyMetrics();
  metrics.rejectedObjects.inc();
  assertStringIncludes(await metrics.registry.metrics(), "kproxy_rejected_objects_total 1");
});

/** Every metric of kube-proxy 1.36 and kproxy with its type and labels, and the modes that have it. */
const ALL: readonly (readonly [name: string, type: string, labels: string, modes?: ProxyMode[]])[] = [
  ["kproxy_health_check_node_port_conflicts", "gauge", ""],
  ["kproxy_rejected_objects_total", "counter", ""],
  ["kubeproxy_conntrack_reconciler_deleted_entries_total", "counter", "ip_family"],
  ["kubeproxy_conntrack_reconciler_sync_duration_seconds", "histogram", "ip_family"],
  ["kubeproxy_iptables_ct_state_invalid_dropped_packets_total", "counter", "", ["iptables"]],
  ["kubeproxy_iptables_localhost_nodeports_accepted_packets_total", "counter", "", ["iptables"]],
  ["kubeproxy_network_programming_duration_seconds", "histogram", "ip_family"],
  ["kubeproxy_proxy_healthz_total", "counter", "code"],
  ["kubeproxy_proxy_livez_total", "counter", "code"],
  ["kubeproxy_sync_full_proxy_rules_duration_seconds", "histogram", "ip_family", ["iptables", "nftables"]],
  ["kubeproxy_sync_partial_proxy_rules_duration_seconds", "histogram", "ip_family", ["iptables", "nftables"]],
  ["kubeproxy_sync_proxy_rules_duration_seconds", "histogram", "ip_family"],
  ["kubeproxy_sync_proxy_rules_endpoint_changes_pending", "gauge", ""],
  ["kubeproxy_sync_proxy_rules_endpoint_changes_total", "counter", ""],
  ["kubeproxy_sync_proxy_rules_iptables_last", "gauge", "ip_family,table", ["iptables"]],
  [
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    "counter",
    "ip_family",
    ["iptables"],
  ],
  [
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "counter",
    "ip_family",
    ["iptables", "ipvs"],
  ],
  ["kubeproxy_sync_proxy_rules_iptables_total", "gauge", "ip_family,table", ["iptables"]],
  ["kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "gauge", "ip_family"],
  ["kubeproxy_sync_proxy_rules_last_timestamp_seconds", "gauge", "ip_family"],
  ["kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "counter", "ip_family", ["nftables"]],
  ["kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "counter", "ip_family", ["nftables"]],
  ["kubeproxy_sync_proxy_rules_no_local_endpoints_total", "gauge", "ip_family,traffic_policy"],
  ["kubeproxy_sync_proxy_rules_service_changes_pending", "gauge", ""],
  ["kubeproxy_sync_proxy_rules_service_changes_total", "counter", ""],
  ["rest_client_rate_limiter_duration_seconds", "histogram", "host,verb"],
  ["rest_client_request_duration_seconds", "histogram", "host,verb"],
  ["rest_client_request_size_bytes", "histogram", "host,verb"],
  ["rest_client_requests_total", "counter", "code,host,method"],
  ["rest_client_response_size_bytes", "histogram", "host,verb"],
];

const SENT = { waitedMs: 0, sentBytes: 100 };

/** Metrics of a mode in which everything has happened once. */
function everything(mode: ProxyMode): ProxyMetrics {
  const metrics = new ProxyMetrics({
    mode,
    readPacketCounts: () => Promise.resolve({ invalidDropped: 3, localhostNodePorts: 0 }),
  });
  const family = { ip_family: "IPv4" };
  metrics.observeSync("IPv4", { full: true, durationMs: 1, endMs: 1, triggerTimesMs: [0] });
  metrics.observeSync("IPv4", { full: false, durationMs: 1, endMs: 1, triggerTimesMs: [] });
  metrics.observeFailure("IPv4", { full: false, durationMs: 1 });
  metrics.nftablesCleanupFailures.inc(family);
  metrics.lastQueuedTimestamp.set(family, 1);
  metrics.noLocalEndpoints.set({ ...family, traffic_policy: "internal" }, 1);
  metrics.iptablesRules.set({ ...family, table: "nat" }, 1);
  metrics.iptablesRulesLast.set({ ...family, table: "nat" }, 1);
  metrics.observeFlows({ family: "IPv4", deleted: 2, durationMs: 1 });
  metrics.healthzTotal.inc({ code: "200" });
  metrics.livezTotal.inc({ code: "200" });
  metrics.observeApiRequest({ method: "GET", host: "10.0.0.1:6443", code: "200", durationMs: 7, ...SENT });
  metrics.observeApiAnswer({ method: "GET", host: "10.0.0.1:6443", receivedBytes: 1_000_000 });
  return metrics;
}

Deno.test("every metric of a mode is there by name, type and labels, and none of another mode", async () => {
  for (const mode of ["iptables", "ipvs", "nftables", "userspace"] as const) {
    const text = await metricsText(everything(mode).registry);
    const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => {
      const sample = new RegExp(`^${name}(?:_sum)?(?:\\{(.*)\\})? `, "m").exec(text);
      const labels = [...(sample?.[1] ?? "").matchAll(/(\w+)="/g)].map(([, label]) => label).sort().join(",");
      return [name, type, labels];
    });
    const expected = ALL.filter(([, , , modes]) => modes?.includes(mode) ?? true)
      .map(([name, type, labels]) => [name, type, labels]);
    assertEquals(types, expected, mode);
    assertEquals(text.match(/^# HELP kubeproxy_\S+ (?!\[ALPHA\] )/gm), null);
  }
});

Deno.test("plain metrics begin at 0, those with labels appear with their first value", async () => {
  const text = await metricsText(new ProxyMetrics().registry);
  assertEquals(text.split("\n").filter((line) => line !== "" && !line.startsWith("#")), [
    "kproxy_health_check_node_port_conflicts 0",
    "kproxy_rejected_objects_total 0",
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
    "kubeproxy_sync_proxy_rules_endpoint_changes_total 0",
    "kubeproxy_sync_proxy_rules_service_changes_pending 0",
    "kubeproxy_sync_proxy_rules_service_changes_total 0",
  ]);
  assertEquals(text.match(/^# TYPE/gm)?.length, 6);
});

Deno.test("durations have kube-proxy's 15 buckets, requests client-go's", async () => {
  const text = await metricsText(everything("iptables").registry);
  const buckets = (name: string): string[] =>
    [...text.matchAll(new RegExp(`^${name}_bucket\\{le="([^"]+)"`, "gm"))].map(([, le = ""]) => le);
  const doubling = Array.from({ length: 15 }, (_, k) => String(0.001 * 2 ** k));
  for (const name of ["sync_proxy_rules", "sync_full_proxy_rules", "conntrack_reconciler_sync"]) {
    assertEquals(buckets(`kubeproxy_${name}_duration_seconds`), [...doubling, "+Inf"], name);
  }
  assertEquals(
    buckets("rest_client_request_duration_seconds").join(" "),
    "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60 +Inf",
  );
  assertEquals(buckets("rest_client_rate_limiter_duration_seconds").length, 13);
  for (const name of ["request", "response"]) {
    assertEquals(
      buckets(`rest_client_${name}_size_bytes`).join(" "),
      "64 256 512 1024 4096 16384 65536 262144 1048576 4194304 16777216 +Inf",
    );
  }
});

Deno.test("packet counts are read once per scrape, and a count that is not known is left out", async () => {
  let counts: Partial<PacketCounts> = { invalidDropped: 5, localhostNodePorts: 2 };
  let readings = 0;
  const metrics = new ProxyMetrics({
    readPacketCounts: () => {
      readings++;
      return Promise.resolve(counts);
    },
  });
  const series = async (): Promise<string[]> =>
    (await metricsText(metrics.registry)).split("\n").filter((line) =>
      line.startsWith("kubeproxy_iptables_")
    );
  const dropped = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
  const accepted = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";
  assertEquals(await series(), [`${dropped} 5`, `${accepted} 2`]);
  assertEquals(readings, 1);
  counts = { invalidDropped: 1 };
  assertEquals(await series(), [`${dropped} 1`]);
  assertEquals(readings, 2);
  counts = {};
  assertEquals(await series(), []);
  const without = await metricsText(new ProxyMetrics().registry);
  assert(!without.includes("kubeproxy_iptables_"));
});
