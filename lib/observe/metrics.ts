/**
 * The metrics of a running proxy: kube-proxy's by exact name, type, labels and buckets (1.36), and kproxy's own.
 *
 * @module
 */
import {
  type Counter,
  type Gauge,
  Histogram,
  newCounter,
  newGauge,
  readTogether,
  Registry,
} from "./prom_client.ts";
import type { ProxyMode } from "../config/types.ts";
import type { IpFamily } from "../model/objects.ts";

/** 1 ms to 16.384 s, doubling. */
const DURATION_BUCKETS_SECONDS = Array.from({ length: 15 }, (_, k) => 0.001 * 2 ** k);

/** 0 (of no use, but there in kube-proxy), 0.25 and 0.5 s, 1 to 59 s by 1, 60 to 115 s by 5, 120 to 300 s by 30. */
const PROGRAMMING_BUCKETS_SECONDS = [
  0,
  0.25,
  0.5,
  ...steps(1, 59, 1),
  ...steps(60, 115, 5),
  ...steps(120, 300, 30),
];

/** client-go's buckets for requests to the API server. */
const REQUEST_BUCKETS_SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];

/** client-go's buckets for bodies. */
const SIZE_BUCKETS_BYTES = [64, 256, 512, ...Array.from({ length: 8 }, (_, k) => 1024 * 4 ** k)];

function steps(from: number, to: number, by: number): number[] {
  return Array.from({ length: (to - from) / by + 1 }, (_, i) => from + i * by);
}

/** Packets that rules of iptables mode have counted since those rules were written. */
export interface PacketCounts {
  /** Dropped because connection tracking found them invalid. */
  readonly invalidDropped: number;
  /** Sent to a node port on a loopback address. */
  readonly localhostNodePorts: number;
}

/** Options that decide which metrics there are. */
export interface ProxyMetricsOptions {
  /** The mode in use: metrics of other modes are left out. @default {"iptables"} */
  readonly mode?: ProxyMode;
  /** Called at every scrape, must not reject; a count it does not know is left out. Without it neither metric is there. */
  readonly readPacketCounts?: () => Promise<Partial<PacketCounts>>;
}

/** A request to the API server, with or without an answer. */
export interface ApiRequest {
  /** `GET`. */
  readonly method: string;
  /** `10.0.0.1:6443`. */
  readonly host: string;
  /** HTTP status; `<error>` if there was no answer. */
  readonly code: string;
  /** Time until the headers were there. */
  readonly durationMs: number;
  /** Wait in the rate limiter, before it was sent. */
  readonly waitedMs: number;
  /** Size of its body. */
  readonly sentBytes: number;
}

/** An answer of the API server that was read to its end. */
export interface ApiAnswer {
  /** Method of the request: `GET`. */
  readonly method: string;
  /** `10.0.0.1:6443`. */
  readonly host: string;
  /** Size of its body. */
  readonly receivedBytes: number;
}

const FAMILY = ["ip_family"];

/** The metrics that not every mode has, without `kubeproxy_sync_`. */
const MODES_OF: readonly (readonly [name: string, modes: readonly ProxyMode[]])[] = [
  ["full_proxy_rules_duration_seconds", ["iptables", "nftables"]],
  ["partial_proxy_rules_duration_seconds", ["iptables", "nftables"]],
  ["proxy_rules_iptables_total", ["iptables"]],
  ["proxy_rules_iptables_last", ["iptables"]],
  ["proxy_rules_iptables_restore_failures_total", ["iptables", "ipvs"]],
  ["proxy_rules_iptables_partial_restore_failures_total", ["iptables"]],
  ["proxy_rules_nftables_sync_failures_total", ["nftables"]],
  ["proxy_rules_nftables_cleanup_failures_total", ["nftables"]],
];

/** Every metric, on one registry of its own. Durations are in seconds, times in seconds since the epoch. */
export class ProxyMetrics {
  readonly registry = new Registry();
  readonly #mode: ProxyMode;

  constructor({ mode = "iptables", readPacketCounts }: ProxyMetricsOptions = {}) {
    this.#mode = mode;
    for (const [name, modes] of MODES_OF) {
      if (!modes.includes(mode)) this.registry.removeSingleMetric(`kubeproxy_sync_${name}`);
    }
    if (readPacketCounts !== undefined) this.followPacketCounts(readPacketCounts);
  }

  readonly syncDuration = this.#histogram(
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "Duration of every sync, in seconds",
  );
  readonly syncFullDuration = this.#histogram(
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "Duration of the syncs that wrote every rule, in seconds",
  );
  readonly syncPartialDuration = this.#histogram(
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "Duration of the syncs that wrote only what changed, in seconds",
  );
  readonly lastSyncTimestamp = this.#gauge(
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    "Time of the last sync that succeeded, in seconds since the epoch",
    FAMILY,
  );
  readonly lastQueuedTimestamp = this.#gauge(
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    "Time of the last request for a sync, in seconds since the epoch",
    FAMILY,
  );
  readonly networkProgrammingDuration = this.#histogram(
    "kubeproxy_network_programming_duration_seconds",
    "Time from the change of an endpoint to its rules, in seconds",
    { buckets: PROGRAMMING_BUCKETS_SECONDS },
  );
  readonly endpointChangesPending = this.#gauge(
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "Changes of EndpointSlices that are not synced yet",
  );
  readonly endpointChangesTotal = this.#counter(
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "Events of EndpointSlices",
  );
  readonly serviceChangesPending = this.#gauge(
    "kubeproxy_sync_proxy_rules_service_changes_pending",
    "Services whose changes are not synced yet",
  );
  readonly serviceChangesTotal = this.#counter(
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "Events of Services, for each IP family",
  );
  readonly noLocalEndpoints = this.#gauge(
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "Service ports with a Local traffic policy that have endpoints, but none on this node",
    ["ip_family", "traffic_policy"],
  );
  readonly iptablesRules = this.#gauge(
    "kubeproxy_sync_proxy_rules_iptables_total",
    "Rules owned now",
    ["ip_family", "table"],
  );
  readonly iptablesRulesLast = this.#gauge(
    "kubeproxy_sync_proxy_rules_iptables_last",
    "Rules written by the last sync",
    ["ip_family", "table"],
  );
  readonly iptablesRestoreFailures = this.#counter(
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "Restores that failed",
    FAMILY,
  );
  readonly iptablesPartialRestoreFailures = this.#counter(
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    "Restores that failed while writing only what changed",
    FAMILY,
  );
  readonly nftablesSyncFailures = this.#counter(
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    "Transactions of nft that failed",
    FAMILY,
  );
  readonly nftablesCleanupFailures = this.#counter(
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
    "Deletions of stale chains that failed",
    FAMILY,
  );
  readonly failedDeletions = this.#counter(
    "kproxy_failed_deletions_total",
    "Failed deletions of unused chains and sets; they are harmless and retried",
    FAMILY,
  );
  readonly conntrackDuration = this.#histogram(
    "kubeproxy_conntrack_reconciler_sync_duration_seconds",
    "Duration of each search for stale flows, in seconds",
  );
  readonly conntrackDeletedEntries = this.#counter(
    "kubeproxy_conntrack_reconciler_deleted_entries_total",
    "Stale flows deleted",
    FAMILY,
  );
  readonly healthzTotal = this.#counter(
    "kubeproxy_proxy_healthz_total",
    "Answers of /healthz, by status",
    ["code"],
  );
  readonly livezTotal = this.#counter("kubeproxy_proxy_livez_total", "Answers of /livez, by status", [
    "code",
  ]);
  readonly apiRequests = this.#counter(
    "rest_client_requests_total",
    "Requests to the API server, by status, method and host",
    ["code", "host", "method"],
  );
  readonly apiRequestDuration = this.#histogram(
    "rest_client_request_duration_seconds",
    "Time until the API server answered, in seconds, by verb and host",
    { labels: ["host", "verb"], buckets: REQUEST_BUCKETS_SECONDS },
  );
  readonly apiRateLimiterDuration = this.#histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Time that a request waited in the rate limiter, in seconds, by verb and host",
    { labels: ["host", "verb"], buckets: REQUEST_BUCKETS_SECONDS },
  );
  readonly apiRequestSize = this.#histogram(
    "rest_client_request_size_bytes",
    "Size of the body of a request, in bytes, by verb and host",
    { labels: ["host", "verb"], buckets: SIZE_BUCKETS_BYTES },
  );
  readonly apiResponseSize = this.#histogram(
    "rest_client_response_size_bytes",
    "Size of the body of an answer, in bytes, by verb and host; watches are not counted",
    { labels: ["host", "verb"], buckets: SIZE_BUCKETS_BYTES },
  );
  readonly rejectedObjects = this.#counter(
    "kproxy_rejected_objects_total",
    "Objects of the source that were refused because they are malformed",
  );
  readonly healthCheckPortConflicts = this.#gauge(
    "kproxy_health_check_node_port_conflicts",
    "Services whose health check node port cannot be opened",
  );

  readonly quarantinedServices = this.#gauge(
    "kproxy_quarantined_services",
    "Services that are too large, or of which the kernel refuses rules, endpoints or addresses; everything else is in force",
    FAMILY,
  );

  readonly unreachableEndpoints = this.#gauge(
    "kproxy_unreachable_endpoints",
    "Endpoints of Services with addresses that no pod has, such as loopback addresses; they are left out",
    FAMILY,
  );

  /** Notes one request to the API server. */
  observeApiRequest({ method, host, code, durationMs, waitedMs, sentBytes }: ApiRequest): void {
    const labels = { host, verb: method };
    this.apiRequests.inc({ code, host, method });
    this.apiRequestDuration.observe(labels, durationMs / 1000);
    this.apiRateLimiterDuration.observe(labels, waitedMs / 1000);
    this.apiRequestSize.observe(labels, sentBytes);
  }

  /** Notes one answer of the API server that was read. */
  observeApiAnswer({ method, host, receivedBytes }: ApiAnswer): void {
    this.apiResponseSize.observe({ host, verb: method }, receivedBytes);
  }

  /** Notes one search for stale flows. */
  observeFlows(flows: {
    readonly family: IpFamily;
    readonly deleted: number;
    readonly durationMs: number;
  }): void {
    const labels = { ip_family: flows.family };
    this.conntrackDuration.observe(labels, flows.durationMs / 1000);
    this.conntrackDeletedEntries.inc(labels, flows.deleted);
  }

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
    this.countRefusal(family, sync.full);
  }

  /** Counts a write that was refused, of everything or of a change. */
  countRefusal(family: IpFamily, full: boolean): void {
    const labels = { ip_family: family };
    if (this.#mode === "nftables") {
      this.nftablesSyncFailures.inc(labels);
      return;
    }
    this.iptablesRestoreFailures.inc(labels);
    if (!full) this.iptablesPartialRestoreFailures.inc(labels);
  }

  #observeDuration(family: IpFamily, full: boolean, durationMs: number): void {
    const labels = { ip_family: family };
    this.syncDuration.observe(labels, durationMs / 1000);
    (full ? this.syncFullDuration : this.syncPartialDuration).observe(labels, durationMs / 1000);
  }

  /** Adds the packet counts of iptables mode. `readOnce` is asked at every scrape and must not reject. */
  followPacketCounts(readOnce: () => Promise<Partial<PacketCounts>>): void {
    if (this.#mode !== "iptables") return;
    const read = readTogether(readOnce);
    newCounter(
      this.registry,
      "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
      "Packets dropped because connection tracking found them invalid",
      { read: async () => (await read()).invalidDropped },
    );
    newCounter(
      this.registry,
      "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
      "Packets sent to a node port on a loopback address",
      { read: async () => (await read()).localhostNodePorts },
    );
  }

  #counter(name: string, help: string, labels: readonly string[] = []): Counter {
    return newCounter(this.registry, name, help, { labels });
  }

  #gauge(name: string, help: string, labels: readonly string[] = []): Gauge {
    return newGauge(this.registry, name, help, { labels });
  }

  #histogram(
    name: string,
    help: string,
    { labels = FAMILY, buckets = DURATION_BUCKETS_SECONDS }: { labels?: string[]; buckets?: number[] } = {},
  ): Histogram {
    return new Histogram({
      name,
      help: `[ALPHA] ${help}`,
      labelNames: [...labels],
      buckets,
      registers: [this.registry],
    });
  }
}
