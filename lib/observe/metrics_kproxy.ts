/**
 * The metrics beside those of syncs and of the API server: the program (version, feature gates, process, log, and the service level
 * indicators that Kubernetes' components have on a page of their own), the configuration file, the snapshot, traffic and the servers.
 *
 * @module
 */
import { ALWAYS_ON, GATE_DEFAULTS, isGateEnabled, LOCKED_ON } from "../config/feature_gates.ts";
import {
  Counter,
  type Gauge,
  newCounter,
  newGauge,
  readTogether,
  Registry,
  type WritesOwnText,
} from "./prom_client.ts";
import { splitNamespacedName } from "../model/names.ts";
import type { PoolObserver } from "../kernel/connection_pool.ts";
import type { ServiceTraffic, Traffic } from "../model/service_traffic.ts";

/** Data that {@linkcode addProgramMetrics} shows. */
export interface ProgramFacts {
  /** `0.1.0`. */
  readonly version: string;
  readonly featureGates: Readonly<Record<string, boolean>>;
  /** When the process began, in milliseconds since the epoch. */
  readonly startMs: number;
  /** Reads the resources that the process has used. @default {systemUsage} */
  readonly usage?: () => Promise<ProcessUsage>;
}

/** Resources that a process has used. */
export interface ProcessUsage {
  readonly cpuSeconds: number;
  readonly residentBytes: number;
}

/** Usage of this process, by the runtime's own account: `/proc` is closed to the program. */
export async function systemUsage(): Promise<ProcessUsage> {
  // Takes milliseconds to load, which a start need not wait for.
  const { default: process } = await import("node:process");
  const { user, system } = process.cpuUsage();
  return { cpuSeconds: (user + system) / 1e6, residentBytes: Deno.memoryUsage().rss };
}

/**
 * Adds `kubernetes_build_info`, `kubernetes_feature_enabled` and `process_*`. Of the latter only what the runtime offers:
 * CPU time, resident memory and start time.
 */
export function addProgramMetrics(registry: Registry, facts: ProgramFacts): void {
  addBuildInfo(registry, facts.version);
  addFeatureGates(registry, facts.featureGates);
  addProcess(registry, facts);
}

function addBuildInfo(registry: Registry, version: string): void {
  const [major = "", minor = ""] = version.split(".");
  const labels = {
    major,
    minor,
    git_version: `v${version}`,
    git_commit: "",
    git_tree_state: "",
    build_date: "",
    go_version: "",
    compiler: `deno ${Deno.version.deno}`,
    platform: `${Deno.build.os}/${Deno.build.arch}`,
  };
  const help = "1, labelled with the version of kproxy and what runs it";
  newGauge(registry, "kubernetes_build_info", help, { labels: Object.keys(labels), stability: "BETA" })
    .set(labels, 1);
}

function addFeatureGates(registry: Registry, gates: Readonly<Record<string, boolean>>): void {
  const help = "Whether a feature gate is on, by name and stage";
  const labels = ["name", "stage"];
  const gauge = newGauge(registry, "kubernetes_feature_enabled", help, { labels, stability: "BETA" });
  for (const name of [...LOCKED_ON, ...ALWAYS_ON]) gauge.set({ name, stage: "" }, 1);
  for (const name of Object.keys(GATE_DEFAULTS) as (keyof typeof GATE_DEFAULTS)[]) {
    gauge.set({ name, stage: GATE_DEFAULTS[name].stage.toUpperCase() }, Number(isGateEnabled(gates, name)));
  }
}

function addProcess(registry: Registry, { startMs, usage = systemUsage }: ProgramFacts): void {
  newCounter(registry, "process_cpu_seconds_total", "CPU time the process has used, in seconds", {
    stability: null,
    read: async () => (await usage()).cpuSeconds,
  });
  newGauge(registry, "process_resident_memory_bytes", "Memory of the process that is in RAM, in bytes", {
    stability: null,
    read: async () => (await usage()).residentBytes,
  });
  addStartTime(registry, startMs);
}

/** Adds `process_start_time_seconds`. */
function addStartTime(registry: Registry, startMs: number): void {
  const help = "When the process began, in seconds since the epoch";
  newGauge(registry, "process_start_time_seconds", help, { stability: null }).set(startMs / 1000);
}

/** Adds `kproxy_log_lines_dropped_total`; `dropped` is asked at every scrape. */
export function addLogMetrics(registry: Registry, dropped: () => number): void {
  const help = "Log lines dropped because the stream was closed, full, or not read";
  newCounter(registry, "kproxy_log_lines_dropped_total", help, { read: dropped });
}

/** Counts the answers of the metrics server's own `/healthz`, which is its check `ping`. */
export class SliMetrics {
  readonly registry = new Registry();
  readonly #healthcheck = newGauge(this.registry, "kubernetes_healthcheck", "1 if the check last succeeded", {
    labels: ["name", "type"],
    stability: "STABLE",
  });
  readonly #healthchecks = newCounter(
    this.registry,
    "kubernetes_healthchecks_total",
    "Results of the check",
    {
      labels: ["name", "status", "type"],
      stability: "STABLE",
    },
  );

  /** @param startMs when the process began, in milliseconds since the epoch */
  constructor(startMs: number) {
    addStartTime(this.registry, startMs);
  }

  /** Counts a check that was requested, and succeeded. */
  pinged(): void {
    this.#healthcheck.set({ name: "ping", type: "healthz" }, 1);
    this.#healthchecks.inc({ name: "ping", status: "success", type: "healthz" });
  }

  /** Forgets all results. */
  reset(): void {
    this.#healthcheck.reset();
    this.#healthchecks.reset();
  }
}

/** Record of the configuration file's reloads since the process began; it outlives restarts inside the process. */
export class ReloadRecord {
  #failures = 0;
  #isRefused = false;
  #lastSuccessMs: number;

  /** @param nowMs when the first configuration was taken, in milliseconds since the epoch */
  constructor(nowMs: number) {
    this.#lastSuccessMs = nowMs;
  }

  /** Notes that a changed file was refused. */
  refused(): void {
    this.#failures++;
    this.#isRefused = true;
  }

  /** Notes that the file is in force. */
  taken(nowMs: number): void {
    this.#isRefused = false;
    this.#lastSuccessMs = nowMs;
  }

  /** The record so far. */
  get state(): { readonly failures: number; readonly isInForce: boolean; readonly lastSuccessMs: number } {
    return { failures: this.#failures, isInForce: !this.#isRefused, lastSuccessMs: this.#lastSuccessMs };
  }

  /** Adds `kproxy_config_*`. */
  addTo(registry: Registry): void {
    newCounter(
      registry,
      "kproxy_config_reload_failures_total",
      "Refused changes of the configuration file",
      { read: () => this.#failures },
    );
    newGauge(
      registry,
      "kproxy_config_last_reload_successful",
      "1 if the current configuration file is in force, 0 if it was refused",
      { read: () => this.#isRefused ? 0 : 1 },
    );
    newGauge(
      registry,
      "kproxy_config_last_reload_success_timestamp_seconds",
      "Time of the last successful reload, in seconds since the epoch",
      { read: () => this.#lastSuccessMs / 1000 },
    );
  }
}

/** The metrics `kproxy_snapshot_*`. Without a file that was written or read their time is 0. */
export class SnapshotMetrics {
  readonly #inUse = newGauge(
    null,
    "kproxy_snapshot_in_use",
    "1 while kproxy serves objects of the snapshot because the API server has not answered",
  );
  readonly #timestamp = newGauge(
    null,
    "kproxy_snapshot_timestamp_seconds",
    "Time of the snapshot in use, or of the last one written, in seconds since the epoch",
  );
  readonly #bytes = newGauge(null, "kproxy_snapshot_size_bytes", "Size of the last snapshot written");
  readonly #failures = newCounter(
    null,
    "kproxy_snapshot_write_failures_total",
    "Failed writes of the snapshot",
  );

  /** Adds them to the metrics of a proxy server, which starts after its source was opened. */
  addTo(registry: Registry): void {
    for (const metric of [this.#inUse, this.#timestamp, this.#bytes]) registry.registerMetric(metric);
    registry.registerMetric(this.#failures);
  }

  /** @param savedAtMs when the snapshot in use was made, in milliseconds since the epoch; null: none is in use */
  setInUse(savedAtMs: number | null): void {
    this.#inUse.set(savedAtMs === null ? 0 : 1);
    if (savedAtMs !== null) this.#timestamp.set(savedAtMs / 1000);
  }

  /** Notes that a snapshot was written. */
  saved({ savedAtMs, bytes }: { readonly savedAtMs: number; readonly bytes: number }): void {
    this.#timestamp.set(savedAtMs / 1000);
    this.#bytes.set(bytes);
  }

  saveFailed(): void {
    this.#failures.inc();
  }
}

/**
 * Adds `kproxy_service_packets_total` and `kproxy_service_bytes_total`: at most two series each for a port of a Service and a
 * family, and none before its first packet. `read` is asked at every scrape and must not reject.
 */
export function addTrafficMetrics(
  registry: Registry,
  read: () => Promise<readonly ServiceTraffic[]>,
): void {
  const readOnce = readTogether(read);
  const add = (name: string, help: string, count: keyof Traffic): void =>
    registry.registerMetric(new TrafficCounter({ name, help, count, read: readOnce }));
  add(
    "kproxy_service_packets_total",
    "Packets between clients and endpoints of a Service port on this node",
    "packets",
  );
  add(
    "kproxy_service_bytes_total",
    "Bytes of packets between clients and endpoints of a Service port on this node, IP headers included",
    "bytes",
  );
}

interface TrafficCounterOptions {
  readonly name: string;
  readonly help: string;
  readonly count: keyof Traffic;
  readonly read: () => Promise<readonly ServiceTraffic[]>;
}

/** Labels of each series, in this order. */
const LABELS = ["ip_family", "namespace", "service", "port", "port_name", "protocol", "direction"];

/** Keeps no series: of 10,000 Services the library would take half a second, of each scrape, in which nothing else runs. */
class TrafficCounter extends Counter implements WritesOwnText {
  readonly #options: TrafficCounterOptions;

  constructor(options: TrafficCounterOptions) {
    super({ name: options.name, help: `[ALPHA] ${options.help}`, labelNames: LABELS, registers: [] });
    this.#options = options;
  }

  async ownText(): Promise<string> {
    const { name, help, count, read } = this.#options;
    const lines = [`# HELP ${name} [ALPHA] ${help}`, `# TYPE ${name} counter`];
    for (const { family, namespacedName, port, portName, protocol, incoming, outgoing } of await read()) {
      const { namespace, name: service } = splitNamespacedName(namespacedName);
      // Names of objects and ports hold nothing that would have to be escaped.
      const series =
        `${name}{ip_family="${family}",namespace="${namespace}",service="${service}",port="${port}",port_name="${portName}",protocol="${protocol}",direction=`;
      lines.push(`${series}"in"} ${incoming[count]}`, `${series}"out"} ${outgoing[count]}`);
    }
    return lines.join("\n");
  }
}

/** The metrics `kproxy_server_*`, by server: `healthz`, `metrics`, `service-health` for all health check node ports. */
export function serverMetrics(registry: Registry): PoolObserver {
  const byServer = { labels: ["server"] };
  const help = "Open connections of clients, by server";
  const connections = newGauge(registry, "kproxy_server_connections", help, byServer);
  const closed = newCounter(
    registry,
    "kproxy_server_connections_closed_total",
    "Connections that kproxy closed, by server and reason: evicted (for another client), refused, timeout",
    { labels: ["server", "reason"] },
  );
  const failed = "Failures of a server to listen or to accept a connection";
  const failures = newCounter(registry, "kproxy_server_failures_total", failed, byServer);
  return {
    open: (server, count) => connections.set({ server }, count),
    closed: (server, reason) => closed.inc({ server, reason }),
    failed: (server) => failures.inc({ server }),
  };
}

/** Reason why a client was refused. */
export type RefusalReason = "handshake" | "unauthenticated" | "forbidden" | "undecided";

/** The metrics `kproxy_serving_*`; they are there only where a server speaks TLS. */
export class ServingMetrics {
  readonly #expiry: Gauge;
  readonly #inForce: Gauge;
  readonly #failures: Counter;
  readonly #refusals: Counter;

  constructor(registry: Registry) {
    this.#expiry = newGauge(
      registry,
      "kproxy_serving_certificate_expiration_timestamp_seconds",
      "Expiration of the certificate in use, in seconds since the epoch",
    );
    this.#inForce = newGauge(
      registry,
      "kproxy_serving_last_reload_successful",
      "1 if the current files of certificate, key, client CA and tokens are in use, 0 if they cannot be used",
    );
    this.#failures = newCounter(
      registry,
      "kproxy_serving_reload_failures_total",
      "Failed reloads of certificate, key, client CA or tokens",
    );
    this.#refusals = newCounter(
      registry,
      "kproxy_serving_refusals_total",
      "Refused connections and requests, by reason: handshake (no TLS, or no valid certificate), " +
        "unauthenticated, forbidden, undecided (the API server could not be asked)",
      { labels: ["reason"] },
    );
  }

  /** Notes that the files are in use. */
  taken(expiresMs: number): void {
    this.#expiry.set(expiresMs / 1000);
    this.#inForce.set(1);
  }

  /** Notes that the files cannot be used. */
  failed(): void {
    this.#failures.inc();
    this.#inForce.set(0);
  }

  /** Counts a client that was refused. */
  refused(reason: RefusalReason): void {
    this.#refusals.inc({ reason });
  }
}
