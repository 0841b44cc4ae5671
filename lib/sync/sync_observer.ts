/**
 * Tells operators of every sync: what changed, how many rules, how long it took.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { ProxyMetrics } from "../observe/metrics.ts";
import { sumOf } from "../text/record.ts";
import { NoLocalEndpointsCount, type NoLocalEndpointsUnit } from "./no_local_endpoints.ts";
import type { ChangeObserver } from "./proxy_loop.ts";
import type { SyncFailure, SyncObserver, SyncOutcome } from "./reconcile.ts";

/** How many Services a log line names; the count says how many there were. */
const NAMED_SERVICES = 10;
const IPTABLES_TABLES: readonly string[] = ["filter", "nat", "mangle"];

/**
 * Writes log lines and metrics. The first sync of a family is always logged, later ones at verbosity 2.
 *
 * @param unit of `sync_proxy_rules_no_local_endpoints_total`
 */
export function observeSyncs(
  log: Logger,
  metrics: ProxyMetrics,
  nowMs: () => number,
  unit: NoLocalEndpointsUnit,
): SyncObserver {
  const ready = new Set<IpFamily>();
  const noLocalEndpoints = new Map<IpFamily, NoLocalEndpointsCount>();
  return {
    begun(): void {
      metrics.endpointChangesPending.set(0);
      metrics.serviceChangesPending.set(0);
    },
    synced(outcome: SyncOutcome): void {
      const { family, full, report, durationMs, services, triggerTimesMs, state } = outcome;
      metrics.observeSync(family, { full, durationMs, endMs: nowMs(), triggerTimesMs });
      for (const [table, count] of Object.entries(report.total)) {
        // What else a mode counts is no rule of iptables.
        if (!IPTABLES_TABLES.includes(table)) continue;
        metrics.iptablesRules.set({ ip_family: family, table }, count);
        metrics.iptablesRulesLast.set({ ip_family: family, table }, report.written[table] ?? 0);
      }
      if (report.failedDeletions !== undefined) {
        metrics.nftablesCleanupFailures.inc({ ip_family: family }, report.failedDeletions);
        metrics.failedDeletions.inc({ ip_family: family }, report.failedDeletions);
      }
      const counts = noLocalEndpoints.get(family) ?? new NoLocalEndpointsCount(unit);
      noLocalEndpoints.set(family, counts);
      counts.update(state, full ? "all" : new Set(services));
      for (const [policy, count] of Object.entries(counts.total)) {
        metrics.noLocalEndpoints.set({ ip_family: family, traffic_policy: policy }, count);
      }
      const first = !ready.has(family);
      ready.add(family);
      log.info(first ? "First sync done, Services are served" : "Synced rules", {
        family,
        full,
        changed: full ? state.services.size : services.length,
        services: full ? undefined : services.slice(0, NAMED_SERVICES),
        endpoints: full ? state.endpointCount : undefined,
        // The metric takes removed chains off, as kube-proxy's does; below zero that tells nobody anything.
        rulesWritten: Math.max(0, sumOf(report.written)),
        rules: sumOf(report.total),
        commands: report.commands,
        bytes: report.bytes,
        took: formatMs(durationMs),
        ...phaseTimes(report.phasesMs ?? {}),
      }, first ? 0 : 2);
    },
    failed({ family, full, error, durationMs }: SyncFailure): void {
      metrics.observeFailure(family, { full, durationMs });
      log.error("Sync failed, will write everything again", error, {
        family,
        full,
        took: formatMs(durationMs),
      });
    },
  };
}

/** Counts the events that come in. Both families share the series, as in kube-proxy. */
export function observeChanges(metrics: ProxyMetrics): ChangeObserver {
  return {
    service(_family, pendingServices): void {
      metrics.serviceChangesTotal.inc();
      metrics.serviceChangesPending.set(pendingServices);
    },
    endpointSlice(_family, pending): void {
      metrics.endpointChangesTotal.inc();
      if (pending) metrics.endpointChangesPending.inc();
    },
  };
}

/** All of the observers as one, told in this order. */
export function joinObservers(...observers: readonly SyncObserver[]): SyncObserver {
  return {
    begun: (sync) => observers.forEach((observer) => observer.begun?.(sync)),
    synced: (outcome) => observers.forEach((observer) => observer.synced(outcome)),
    failed: (failure) => observers.forEach((observer) => observer.failed(failure)),
  };
}

function phaseTimes(phasesMs: Readonly<Record<string, number>>): Record<string, string> {
  return Object.fromEntries(Object.entries(phasesMs).map(([phase, ms]) => [phase, formatMs(ms)]));
}

function formatMs(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(1)}ms` : `${(ms / 1000).toFixed(2)}s`;
}
