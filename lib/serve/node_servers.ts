/**
 * All servers of a running proxy, put together.
 *
 * @module
 */
import { interfaceIps as systemInterfaceIps } from "../kernel/machine.ts";
import type { KubeProxyConfiguration, ProxyMode, SyncPeriods } from "../config/types.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import { wallClockMs } from "../kernel/clock.ts";
import { AUDIT, errorText, type Logger, type Verbosity } from "../observe/log.ts";
import type { ProxyMetrics } from "../observe/metrics.ts";
import { addProgramMetrics, serverMetrics, ServingMetrics } from "../observe/metrics_kproxy.ts";
import type { SyncObserver } from "../sync/family_runner.ts";
import { ConfigError } from "../errors.ts";
import { ConnectionPool } from "../kernel/connection_pool.ts";
import type { KubeClient } from "../source/kube/kube_client.ts";
import { jsonAnswer, notFoundAnswer, textAnswer } from "./http_answer.ts";
import { HealthState, systemHealthClock } from "./health_state.ts";
import { HttpServer } from "./http_server.ts";
import type { Handler } from "./http_listener.ts";
import { LocalSocket } from "./local_socket.ts";
import { type MetricsHandlers, metricsHandlers } from "./metrics_server.ts";
import { nodePortListenAddresses, type PortConflict, ServiceHealthServers } from "./service_health.ts";
import { documents, pagesForBrowsers, type ProxyFacts, type ServerFacts } from "./status/status_api.ts";
import { AUDIT_PATH } from "./status/status_document.ts";
import type { Judge, TlsServing } from "./tls/tls_serving.ts";

/** Dependencies of {@linkcode NodeServers}. */
export interface NodeServersOptions {
  readonly config: KubeProxyConfiguration;
  /** Configuration that `/configz` shows, if it is not always `config`. */
  readonly currentConfig?: () => KubeProxyConfiguration;
  /** The mode really in use. */
  readonly mode: ProxyMode;
  readonly periods: SyncPeriods;
  /** The families that are proxied. */
  readonly families: readonly IpFamily[];
  /** Families that the node cannot serve, and why. */
  readonly refused?: readonly { readonly family: IpFamily; readonly reason: string }[] | undefined;
  readonly metrics: ProxyMetrics;
  readonly log: Logger;
  /** Verbosity of the log, for `PUT /debug/flags/v`. */
  readonly verbosity: Verbosity;
  /** Every flag with its value, for `/flagz`. */
  readonly flags: () => Iterable<readonly [name: string, value: string]>;
  readonly version: string;
  /** The Kubernetes release whose behaviour is followed, `1.36`. */
  readonly emulationVersion: string;
  /** Called once for every health check node port that cannot be opened. */
  readonly onPortConflict?: (conflict: PortConflict) => void;
  /** Called when the health server cannot listen, once until it can. */
  readonly onHealthFailure?: (problem: string) => void;
  /** Called when the metrics server cannot listen, once until it can. */
  readonly onMetricsFailure?: (problem: string) => void;
  /** Data for the pages below `/kproxy/`; absent: there are none. */
  readonly proxy?: ProxyFacts;
  /** Opens a client for reviews of clients' tokens; absent where there is no API server. */
  readonly openReviewer?: (() => Promise<KubeClient>) | undefined;
  /** Addresses of all interfaces, both families. @default {those of the runtime} */
  readonly interfaceIps?: () => readonly string[];
}

/** Most connections to the health server: of a kubelet and some load balancers, which come and go. */
const MOST_HEALTH_CONNECTIONS = 128;
/** Most connections to the metrics server: of some scrapers, whose answers are large. */
const MOST_METRICS_CONNECTIONS = 32;

/** The health server, the metrics server and the health check node ports, for one proxy server. */
export class NodeServers {
  readonly health: HealthState;
  /** Observes every sync. */
  readonly observer: SyncObserver;
  readonly #options: NodeServersOptions;
  readonly #serviceHealth: ServiceHealthServers;
  readonly #pool: ConnectionPool;
  #servers: HttpServer[] = [];
  #socket: LocalSocket | null = null;
  #tls: TlsServing | null = null;
  #reviewer: KubeClient | null = null;
  #node: NodeObject | null = null;

  constructor(options: NodeServersOptions) {
    const { families, refused, periods, metrics, log, config, interfaceIps = systemInterfaceIps } = options;
    this.#options = options;
    this.#pool = new ConnectionPool({ observer: serverMetrics(metrics.registry) });
    const { syncPeriod: syncPeriodMs } = periods;
    this.health = new HealthState({ families, refused, syncPeriodMs, clock: systemHealthClock });
    this.#serviceHealth = new ServiceHealthServers({
      isProxyHealthy: () => this.health.isProxyHealthy,
      addresses: (family) => nodePortListenAddresses(family, config, this.#node, interfaceIps()),
      log,
      pool: this.#pool,
      onConflict: (conflict) => options.onPortConflict?.(conflict),
      onConflictCount: (count) => metrics.healthCheckPortConflicts.set(count),
    });
    this.observer = observeHealth(this.health, this.#serviceHealth);
    const { version } = options;
    const { featureGates } = config;
    addProgramMetrics(metrics.registry, { version, featureGates, startMs: performance.timeOrigin });
  }

  /** Addresses that the health and the metrics server listen on, e.g. `[::]:10256`; empty if one does not. */
  get addresses(): readonly (readonly string[])[] {
    return this.#servers.map(({ addresses }) => addresses);
  }

  /**
   * Begins to listen; the loops are about to run.
   *
   * @param signal ends the search for the program that has an address
   * @throws {Error} with `bindAddressHardFail`, if an address cannot be had
   * @throws {ConfigError} if files that `kproxy.serving` names cannot be used
   */
  async start(signal: AbortSignal): Promise<void> {
    if (this.#options.config.kproxy.serving.tlsCertFile !== "") this.#tls = await this.#openTls();
    const { config, metrics, log, onHealthFailure, onMetricsFailure } = this.#options;
    const { tcp, socket } = this.#handlers();
    this.health.started();
    const common = { hardFail: config.bindAddressHardFail, log, pool: this.#pool };
    this.#servers = [
      new HttpServer({
        name: "healthz",
        address: config.healthzBindAddress,
        most: MOST_HEALTH_CONNECTIONS,
        secure: config.kproxy.serving.healthz ? this.#tls?.secureForAll : undefined,
        handler: healthHandler(this.health, metrics),
        onListenFailure: onHealthFailure,
        ...common,
      }),
      new HttpServer({
        name: "metrics",
        address: config.metricsBindAddress,
        most: MOST_METRICS_CONNECTIONS,
        secure: this.#tls?.secure,
        handler: this.#tls?.guard(tcp) ?? tcp,
        onListenFailure: onMetricsFailure,
        ...common,
      }),
    ];
    for (const server of this.#servers) await server.start(signal);
    // Last: one that does not come to serve leaves the socket to the kproxy that has it.
    this.#socket = new LocalSocket({ path: config.kproxy.socket, handler: socket, log, pool: this.#pool });
    this.#socket.start();
  }

  #handlers(): MetricsHandlers {
    const { config, metrics, flags, verbosity, proxy, log } = this.#options;
    const facts = this.#facts();
    return metricsHandlers({
      ...facts,
      registry: metrics.registry,
      flags,
      verbosity,
      page: proxy === undefined ? undefined : pagesForBrowsers(proxy, facts),
      documents: new Map([
        ...proxy !== undefined && config.kproxy.statusApi ? documents(proxy, facts) : [],
        [AUDIT_PATH, auditHandler(log)],
      ]),
      socket: config.kproxy.socket,
    });
  }

  async #openTls(): Promise<TlsServing> {
    const { config: { kproxy: { serving } }, log, metrics, openReviewer } = this.#options;
    const { TlsServing } = await import("./tls/tls_serving.ts");
    let judge: Judge | undefined;
    if (serving.delegatedAuthentication) {
      const { DelegatedAuthentication } = await import("./tls/delegated_authentication.ts");
      if (openReviewer === undefined) {
        const message = "needs an API server, and all objects come from files";
        throw new ConfigError([{ path: "kproxy.serving.delegatedAuthentication", message }]);
      }
      this.#reviewer = await openReviewer();
      judge = new DelegatedAuthentication({ client: this.#reviewer, log }).judge;
    }
    return await TlsServing.open({
      config: serving,
      log,
      metrics: new ServingMetrics(metrics.registry),
      judge,
    });
  }

  #facts(): ServerFacts {
    const { mode, families, version, emulationVersion, config, currentConfig = () => config } = this.#options;
    return {
      health: this.health,
      mode,
      families,
      config: currentConfig,
      version,
      emulationVersion,
      startMs: performance.timeOrigin,
      servingSinceMs: wallClockMs(),
      listening: () => {
        const [healthz = [], metrics = []] = this.addresses;
        return { healthz, metrics };
      },
      nowMs: wallClockMs,
    };
  }

  /** The own Node as it was last known; null: not known yet. */
  get node(): NodeObject | null {
    return this.#node;
  }

  /** Sets the own Node; undefined: it is gone. */
  setNode(node: NodeObject | undefined): void {
    this.health.setNode(node);
    // The last Node stays in force, here as for the rules.
    if (node !== undefined) this.#node = node;
  }

  /** Closes every port. */
  async stop(): Promise<void> {
    const servers = [
      ...this.#servers,
      this.#serviceHealth,
      ...this.#socket === null ? [] : [this.#socket],
      ...this.#tls === null ? [] : [this.#tls],
    ];
    await Promise.all(servers.map((server) => server.stop()));
    this.#reviewer?.close();
    this.#servers = [];
  }
}

const MOST_AUDITED = 1_000;

/** Logs what a command has done to the node. */
function auditHandler(log: Logger): Handler {
  return (request) => {
    if (request.method !== "POST") return textAnswer("405 method not allowed\n", { status: 405 });
    const { searchParams } = new URL(request.url);
    const given = (name: string): string => (searchParams.get(name) ?? "").slice(0, MOST_AUDITED);
    log.info(AUDIT, { action: given("action"), uid: given("uid"), what: given("what") });
    return textAnswer("ok\n");
  };
}

/** Passes every sync on to the health state and, if it succeeded, to the health check node ports. */
export function observeHealth(health: HealthState, serviceHealth: ServiceHealthServers): SyncObserver {
  return {
    begun: ({ family }) => health.queued(family),
    synced({ family, full, services, state }): void {
      health.synced(family);
      serviceHealth.update(family, state, full ? "all" : new Set(services));
    },
    failed: ({ family, error }) => health.failed(family, errorText(error)),
  };
}

/** Counters of the health pages' answers. */
export type HealthMetrics = Pick<ProxyMetrics, "healthzTotal" | "livezTotal">;

const HEALTH_PAGES = ["healthz", "livez", "readyz"] as const;

/** Answers by path, whatever the method. */
export function healthHandler(health: HealthState, metrics: HealthMetrics): Handler {
  return (request) => {
    const { pathname } = new URL(request.url);
    const page = HEALTH_PAGES.find((name) => pathname === `/${name}`);
    if (page === undefined) return notFoundAnswer();
    const { status, body } = health[page]();
    if (page !== "readyz") metrics[`${page}Total`].inc({ code: String(status) });
    return jsonAnswer(body, { status });
  };
}
