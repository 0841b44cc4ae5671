/**
 * What is known of the program itself: its version, its feature gates, its process, its log, and the service level indicators that
 * Kubernetes' components have on a page of their own.
 *
 * @module
 */
import { ALWAYS_ON, GATE_DEFAULTS, isGateEnabled, LOCKED_ON } from "../config/feature_gates.ts";
import { Counter, Gauge, Registry } from "./prom_client.ts";

/** What {@linkcode addProgramMetrics} shows. */
export interface ProgramFacts {
  /** `0.1.0`. */
  readonly version: string;
  readonly featureGates: Readonly<Record<string, boolean>>;
  /** When the process began, in milliseconds since the epoch. */
  readonly startMs: number;
  /** What the process has used. @default {systemUsage} */
  readonly usage?: () => Promise<ProcessUsage>;
}

/** What a process has used of the machine. */
export interface ProcessUsage {
  readonly cpuSeconds: number;
  readonly residentBytes: number;
}

/** This process, by the runtime's own account: `/proc` is closed to the program. */
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
  new Gauge({
    name: "kubernetes_build_info",
    help: "[BETA] 1, labelled with the version of kproxy and what runs it",
    labelNames: Object.keys(labels),
    registers: [registry],
  }).set(labels, 1);
}

function addFeatureGates(registry: Registry, gates: Readonly<Record<string, boolean>>): void {
  const gauge = new Gauge({
    name: "kubernetes_feature_enabled",
    help: "[BETA] Whether a feature gate is on, by name and stage",
    labelNames: ["name", "stage"],
    registers: [registry],
  });
  for (const name of [...LOCKED_ON, ...ALWAYS_ON]) gauge.set({ name, stage: "" }, 1);
  for (const name of Object.keys(GATE_DEFAULTS) as (keyof typeof GATE_DEFAULTS)[]) {
    gauge.set({ name, stage: GATE_DEFAULTS[name].stage.toUpperCase() }, Number(isGateEnabled(gates, name)));
  }
}

function addProcess(registry: Registry, { startMs, usage = systemUsage }: ProgramFacts): void {
  new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time the process has used, in seconds",
    registers: [registry],
    async collect(): Promise<void> {
      const { cpuSeconds } = await usage();
      this.reset();
      this.inc(cpuSeconds);
    },
  });
  new Gauge({
    name: "process_resident_memory_bytes",
    help: "Memory of the process that is in RAM, in bytes",
    registers: [registry],
    async collect(): Promise<void> {
      this.set((await usage()).residentBytes);
    },
  });
  addStartTime(registry, startMs);
}

/** Adds `process_start_time_seconds`. */
function addStartTime(registry: Registry, startMs: number): void {
  new Gauge({
    name: "process_start_time_seconds",
    help: "When the process began, in seconds since the epoch",
    registers: [registry],
  }).set(startMs / 1000);
}

/** Adds `kproxy_log_lines_dropped_total`; `dropped` is asked at every scrape. */
export function addLogMetrics(registry: Registry, dropped: () => number): void {
  new Counter({
    name: "kproxy_log_lines_dropped_total",
    help: "[ALPHA] Log lines dropped because the stream was closed, full, or not read",
    registers: [registry],
    collect(): void {
      this.reset();
      this.inc(dropped());
    },
  });
}

/** Counts the answers of the metrics server's own `/healthz`, which is its check `ping`. */
export class SliMetrics {
  readonly registry = new Registry();
  readonly #healthcheck = new Gauge({
    name: "kubernetes_healthcheck",
    help: "[STABLE] 1 if the check last succeeded",
    labelNames: ["name", "type"],
    registers: [this.registry],
  });
  readonly #healthchecks = new Counter({
    name: "kubernetes_healthchecks_total",
    help: "[STABLE] Results of the check",
    labelNames: ["name", "status", "type"],
    registers: [this.registry],
  });

  /** @param startMs when the process began, in milliseconds since the epoch */
  constructor(startMs: number) {
    addStartTime(this.registry, startMs);
  }

  /** The check was asked for, and succeeded. */
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
