import { assertEquals, assertStringIncludes } from "@std/assert";
import { ProxyMetrics } from "./metrics.ts";

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

Deno.test("the programming latency has kube-proxy's 80 buckets", async () => {
  const metrics = new ProxyMetrics();
  metrics.observeSync("IPv6", { full: false, durationMs: 1, endMs: 0, triggerTimesMs: [0] });
  const text = await metrics.registry.metrics();
  const buckets = [...text.matchAll(/network_programming_duration_seconds_bucket\{le="([^"]+)"/g)].map((m) =>
    m[1]
  );
  assertEquals(buckets.length, 81);
  assertEquals(buckets.slice(0, 4), ["0.25", "0.5", "1", "2"]);
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
