/**
 * The metrics of a running proxy: kube-proxy's by exact name, type, labels and buckets (1.36), and kproxy's own.
 *
 * @module
 */
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { IpFamily } from "../model/objects.ts";

/** 1 ms to 16.384 s, doubling. */
const DURATION_BUCKETS_SECONDS = Array.from({ length: 15 }, (_, k) => 0.001 * 2 ** k);

/** 0.25 and 0.5 s, 1 to 59 s by 1, 60 to 115 s by 5, 120 to 300 s by 30. */
const PROGRAMMING_BUCKETS_SECONDS = [
  0.25,
  0.5,
  ...steps(1, 59, 1),
  ...steps(60, 115, 5),
  ...steps(120, 300, 30),
];

function steps(from: number, to: number, by: number): number[] {
  return Array.from({ length: (to - from) / by + 1 }, (_, i) => from + i * by);
}

/** Every metric, on one registry of its own. Durations are in seconds, times in seconds since the epoch. */
export class ProxyMetrics {
  readonly registry = new Registry();

  readonly syncDuration = this.#familyHistogram(
    "sync_proxy_rules_duration_seconds",
    "Duration of every sync, in seconds",
  );
  readonly syncFullDuration = this.#familyHistogram(
    "sync_full_proxy_rules_duration_seconds",
    "Duration of the syncs that wrote every rule, in seconds",
  );
  readonly syncPartialDuration = this.#familyHistogram(
    "sync_partial_proxy_rules_duration_seconds",
    "Duration of the syncs that wrote only what changed, in seconds",
  );
  readonly lastSyncTimestamp = this.#gauge(
    "sync_proxy_rules_last_timestamp_seconds",
    "Time of the last sync that succeeded, in seconds since the epoch",
    ["ip_family"],
  );
  readonly lastQueuedTimestamp = this.#gauge(
    "sync_proxy_rules_last_queued_timestamp_seconds",
    "Time of the last request for a sync, in seconds since the epoch",
    ["ip_family"],
  );
  readonly networkProgrammingDuration = this.#familyHistogram(
    "network_programming_duration_seconds",
    "Time from the change of an endpoint to its rules, in seconds",
    PROGRAMMING_BUCKETS_SECONDS,
  );
  readonly iptablesRestoreFailures = this.#counter(
    "sync_proxy_rules_iptables_restore_failures_total",
    "Restores that failed",
    ["ip_family"],
  );
  readonly iptablesPartialRestoreFailures = this.#counter(
    "sync_proxy_rules_iptables_partial_restore_failures_total",
    "Restores that failed while writing only what changed",
    ["ip_family"],
  );
  readonly iptablesRules = this.#gauge(
    "sync_proxy_rules_iptables_total",
    "Rules owned now",
    ["ip_family", "table"],
  );
  readonly iptablesRulesLast = this.#gauge(
    "sync_proxy_rules_iptables_last",
    "Rules written by the last sync",
    ["ip_family", "table"],
  );
  readonly rejectedObjects = this.#counter(
    "rejected_objects_total",
    "Objects of the source that were refused because they are malformed",
    [],
    "kproxy",
  );

  /** Notes one sync that succeeded, and how long the changes it carried had been waiting. */
  observeSync(
    family: IpFamily,
    sync: {
      readonly full: boolean;
      readonly durationMs: number;
      readonly endMs: number;
      readonly triggerTimesMs: readonly number[];
    },
  ): void {
    this.#observeDuration(family, sync.full, sync.durationMs);
    this.lastSyncTimestamp.set({ ip_family: family }, sync.endMs / 1000);
    for (const triggerMs of sync.triggerTimesMs) {
      this.networkProgrammingDuration.observe({ ip_family: family }, (sync.endMs - triggerMs) / 1000);
    }
  }

  /** Notes one sync whose rules were refused. */
  observeFailure(family: IpFamily, sync: { readonly full: boolean; readonly durationMs: number }): void {
    this.#observeDuration(family, sync.full, sync.durationMs);
    this.iptablesRestoreFailures.inc({ ip_family: family });
    if (!sync.full) this.iptablesPartialRestoreFailures.inc({ ip_family: family });
  }

  #observeDuration(family: IpFamily, full: boolean, durationMs: number): void {
    const labels = { ip_family: family };
    this.syncDuration.observe(labels, durationMs / 1000);
    (full ? this.syncFullDuration : this.syncPartialDuration).observe(labels, durationMs / 1000);
  }

  #counter(name: string, help: string, labelNames: string[], prefix = "kubeproxy"): Counter {
    return new Counter({
      name: `${prefix}_${name}`,
      help: `[ALPHA] ${help}`,
      labelNames,
      registers: [this.registry],
    });
  }

  #gauge(name: string, help: string, labelNames: string[]): Gauge {
    return new Gauge({
      name: `kubeproxy_${name}`,
      help: `[ALPHA] ${help}`,
      labelNames,
      registers: [this.registry],
    });
  }

  #familyHistogram(name: string, help: string, buckets = DURATION_BUCKETS_SECONDS): Histogram {
    return new Histogram({
      name: `kubeproxy_${name}`,
      help: `[ALPHA] ${help}`,
      labelNames: ["ip_family"],
      buckets,
      registers: [this.registry],
    });
  }
}
