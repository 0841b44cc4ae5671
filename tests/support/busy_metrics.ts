/**
 * Metrics of a proxy that has counted every kind of event.
 *
 * @module
 */
import type { ProxyMode } from "../../lib/config/types.ts";
import type { ServiceTraffic } from "../../lib/model/service_traffic.ts";
import { ProxyMetrics } from "../../lib/observe/metrics.ts";
import {
  addLogMetrics,
  addProgramMetrics,
  addTrafficMetrics,
  ReloadRecord,
  serverMetrics,
  SnapshotMetrics,
} from "../../lib/observe/metrics_kproxy.ts";
import type { Registry } from "../../lib/observe/prom_client.ts";

const TRAFFIC: readonly ServiceTraffic[] = [{
  family: "IPv4",
  namespacedName: "shop/web",
  portName: "http",
  port: 80,
  protocol: "TCP",
  incoming: { packets: 7, bytes: 420 },
  outgoing: { packets: 5, bytes: 3e12 },
}];

/** All series of a dual-stack proxy that has counted every kind of event. */
export function busyMetrics(mode: ProxyMode): ProxyMetrics {
  const metrics = new ProxyMetrics({
    mode,
    readPacketCounts: () => Promise.resolve({ invalidDropped: 3, localhostNodePorts: 1e21 }),
  });
  if (mode === "nftables") addTrafficMetrics(metrics.registry, () => Promise.resolve(TRAFFIC));
  for (const family of ["IPv4", "IPv6"] as const) {
    const labels = { ip_family: family };
    for (const full of [true, false]) {
      metrics.observeSync(family, {
        full,
        durationMs: 0.4,
        endMs: Date.now(),
        triggerTimesMs: [Date.now() - 700],
      });
      metrics.observeFailure(family, { full, durationMs: 17_000 });
    }
    for (const table of ["nat", "filter"]) {
      metrics.iptablesRules.set({ ...labels, table }, 4711);
      metrics.iptablesRulesLast.set({ ...labels, table }, 0);
    }
    for (const policy of ["internal", "external"]) {
      metrics.noLocalEndpoints.set({ ...labels, traffic_policy: policy }, 2);
    }
    metrics.lastQueuedTimestamp.set(labels, Date.now() / 1000);
    metrics.quarantinedServices.set(labels, 1);
    metrics.unreachableEndpoints.set(labels, 1);
    metrics.nftablesCleanupFailures.inc(labels);
    metrics.observeFlows({ family, deleted: 3, durationMs: 12 });
  }
  for (const code of ["200", "503"]) {
    metrics.healthzTotal.inc({ code });
    metrics.livezTotal.inc({ code });
    metrics.observeApiRequest({
      method: "GET",
      host: "[fd00::1]:6443",
      code,
      durationMs: 3,
      waitedMs: 0,
      sentBytes: 0,
    });
  }
  metrics.observeApiRequest({
    method: "GET",
    host: 'a"b\\c',
    code: "<error>",
    durationMs: 60_001,
    waitedMs: 7,
    sentBytes: 1e9,
  });
  metrics.observeApiAnswer({ method: "GET", host: 'a"b\\c', receivedBytes: 0 });
  addProgramMetrics(metrics.registry, {
    version: "0.1.0",
    featureGates: {},
    startMs: performance.timeOrigin,
  });
  addRecords(metrics.registry);
  return metrics;
}

/** Adds metrics of the parts around the proxy. */
function addRecords(registry: Registry): void {
  addLogMetrics(registry, () => 12);
  const reloads = new ReloadRecord(Date.now());
  reloads.refused();
  reloads.addTo(registry);
  const snapshot = new SnapshotMetrics();
  snapshot.setInUse(Date.now() - 60_000);
  snapshot.saved({ savedAtMs: Date.now(), bytes: 4_711 });
  snapshot.saveFailed();
  snapshot.addTo(registry);
  const servers = serverMetrics(registry);
  for (const server of ["healthz", "metrics", "service-health"]) {
    servers.open(server, 2);
    servers.closed(server, "timeout", "192.0.2.1");
    servers.failed(server);
  }
}
