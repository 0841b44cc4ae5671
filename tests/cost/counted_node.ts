/**
 * A node over the stateful fakes whose work is counted: from an event of the watch through the store, the handlers, the change tracker and
 * the planner to the programs, with everything that hears of a sync.
 *
 * @module
 */
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { createLogger } from "../../lib/observe/log.ts";
import { ProxyMetrics } from "../../lib/observe/metrics.ts";
import { ConnectionPool } from "../../lib/kernel/connection_pool.ts";
import { observeHealth } from "../../lib/serve/node_servers.ts";
import { HealthState } from "../../lib/serve/health_state.ts";
import type { Listener } from "../../lib/serve/http_listener.ts";
import { ServiceHealthServers } from "../../lib/serve/service_health.ts";
import { StatusRecord } from "../../lib/serve/status/status_record.ts";
import { ENDPOINT_SLICES, SERVICES } from "../../lib/source/kube/kube_source.ts";
import { KubeStore } from "../../lib/source/kube/store.ts";
import type { SourceEvent } from "../../lib/source/source.ts";
import { EventHandlers } from "../../lib/sync/event_handlers.ts";
import {
  joinObservers,
  observeChanges,
  observeQuarantine,
  observeSyncs,
} from "../../lib/sync/sync_observer.ts";
import { Reconciler } from "../../lib/sync/family_runner.ts";
import type { FakeMachine } from "../chaos/fake_chaos.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import { Visits } from "./visits.ts";

/** What one change cost. */
export interface Cost {
  /** Names of the programs that were started, in order. */
  readonly programs: readonly string[];
  /** What they were fed with. */
  readonly bytes: number;
  /** Entries of maps, sets, lists and records that were looked at. */
  readonly visits: number;
}

/** Counts what is started; the stand-in's own work does not count. */
class CountedExec implements Exec {
  readonly #real: Exec;
  programs: string[] = [];
  bytes = 0;
  visits: Visits | null = null;

  constructor(real: Exec) {
    this.#real = real;
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { stdin, ...rest } = options;
    const text = stdin === undefined ? undefined : wholeText(stdin);
    this.programs.push(argv[0] ?? "");
    this.bytes += new TextEncoder().encode(text ?? "").length;
    const run = (): Promise<ExecResult> =>
      this.#real.run(argv, text === undefined ? rest : { ...rest, stdin: text });
    return await (this.visits === null ? run() : this.visits.paused(run));
  }
}

/** Ports of load balancers' health checks without a listener. */
function noListener(): Listener {
  return { finished: new Promise(() => {}), close: () => Promise.resolve() } as unknown as Listener;
}

/** See the module. */
export class CountedNode implements AsyncDisposable {
  readonly #exec: CountedExec;
  readonly #services = new KubeStore(SERVICES, "", ({ message }) => this.#problems.push(message));
  readonly #slices = new KubeStore(ENDPOINT_SLICES, "", ({ message }) => this.#problems.push(message));
  readonly #serviceHealth: ServiceHealthServers;
  readonly #handlers: EventHandlers;
  readonly #reconciler: Reconciler;
  readonly #problems: string[] = [];
  #isAsked = false;

  constructor(machine: FakeMachine, mode: "iptables" | "nftables" | "ipvs") {
    this.#exec = new CountedExec(machine.exec);
    const problem = (text: string): number => this.#problems.push(text);
    const log = createLogger({
      format: "json",
      verbosity: 2,
      write: (line) => {
        if (line.includes("error")) problem(line);
      },
      nowMs: () => 0,
      pid: 1,
    });
    const metrics = new ProxyMetrics({ mode });
    const family = "IPv4";
    const health = new HealthState({
      families: [family],
      syncPeriodMs: 30_000,
      clock: { nowMs: () => 0, epochMs: () => 0 },
    });
    this.#serviceHealth = new ServiceHealthServers({
      isProxyHealthy: () => true,
      addresses: () => "all",
      log,
      pool: new ConnectionPool(),
      listen: noListener,
    });
    const tracker = new ChangeTracker({ family, node: { name: "node-1", zone: "" } });
    this.#handlers = new EventHandlers({
      runners: [{ family, tracker, requestSync: () => this.#isAsked = true }],
      nodeName: "node-1",
      onNode: () => {},
      onRejected: ({ message }) => problem(message),
      changes: observeChanges(metrics),
    });
    this.#handlers.openGate();
    this.#reconciler = new Reconciler({
      tracker,
      proxier: machine.proxier(this.#exec),
      observer: joinObservers(
        observeSyncs(log, metrics, () => 0, mode === "ipvs" ? "services" : "servicePorts"),
        observeQuarantine({ log, metrics, onQuarantined: ({ problem: text }) => problem(text) }),
        observeHealth(health, this.#serviceHealth),
        new StatusRecord([family], () => 0).observer,
      ),
      nowMs: () => 0,
    });
  }

  /** Takes the first lists, and writes all rules. */
  async start(services: readonly RawApiObject[], slices: readonly RawApiObject[]): Promise<Cost> {
    return await this.#counted(async () => {
      const events: SourceEvent[] = [];
      for (const service of services) this.#services.put(service, events);
      for (const slice of slices) this.#slices.put(slice, events);
      events.push({ type: "synced", kind: "services" }, { type: "synced", kind: "endpointslices" });
      this.#handlers.events(events);
      await this.#sync();
    });
  }

  /** Takes an event of the watch, and writes what follows from it. */
  async change(type: "put" | "delete", object: RawApiObject): Promise<Cost> {
    return await this.#counted(async () => {
      const store = object.kind === "Service" ? this.#services : this.#slices;
      const events: SourceEvent[] = [];
      store[type](object, events);
      this.#handlers.events(events);
      if (this.#isAsked) await this.#sync();
    });
  }

  async #counted(work: () => Promise<void>): Promise<Cost> {
    Object.assign(this.#exec, { programs: [], bytes: 0 });
    using visits = new Visits();
    this.#exec.visits = visits;
    await work();
    this.#exec.visits = null;
    const { programs, bytes } = this.#exec;
    return { programs, bytes, visits: visits.count };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#serviceHealth.stop();
  }

  async #sync(): Promise<void> {
    this.#isAsked = false;
    await this.#reconciler.reconcile();
    await this.#serviceHealth.settled();
    if (this.#problems.length > 0) throw new Error(this.#problems.join("\n"));
  }
}
