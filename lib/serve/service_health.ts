/**
 * The servers on health check node ports: one per Service of type LoadBalancer with external policy Local.
 *
 * @module
 */
import { compareBytes, splitNamespacedName } from "../model/names.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../model/objects.ts";
import type { Changed, ProxyState } from "../model/state.ts";
import { errorText, type Logger } from "../observe/log.ts";
import type { ConnectionPool } from "../kernel/connection_pool.ts";
import { listen, type Listener } from "./http_listener.ts";
import { jsonAnswer } from "./http_answer.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { matchingNodeIps, nodeIps, nodePortAddresses } from "../model/node.ts";

/** A health check node port that cannot be opened. */
export interface PortConflict {
  readonly service: NamespacedName;
  readonly port: number;
  /** Why, in the words of the system. */
  readonly message: string;
}

/** Dependencies of {@linkcode ServiceHealthServers}. */
export interface ServiceHealthOptions {
  /** See `HealthState.isProxyHealthy`. */
  readonly isProxyHealthy: () => boolean;
  /** Addresses on which ports of a family are opened; asked whenever ports are opened or everything was synced. */
  readonly addresses: (family: IpFamily) => ListenAddresses;
  readonly log: Logger;
  /** The pool of all servers together. */
  readonly pool: ConnectionPool;
  /** Called once for every port that cannot be opened, and again if the reason changes. */
  readonly onConflict?: (conflict: PortConflict) => void;
  /** Called with the number of Services with such a port, whenever it changes. */
  readonly onConflictCount?: (count: number) => void;
  /** Pause before a port that could not be opened is tried again, in milliseconds. @default {30000} */
  readonly retryMs?: number;
  /** @default {listen} */
  readonly listen?: typeof listen;
}

interface Health {
  readonly port: number;
  /** Number of ready endpoints on this node, by IP. */
  readonly localEndpoints: number;
}

/** A host and port that answer health checks of a Service. */
interface Place {
  readonly service: NamespacedName;
  readonly host: string;
  readonly port: number;
}

const RETRY_MS = 30_000;
/** Each port has as many connections of its own: those of a few load balancers. */
const LANE = { server: "service-health", most: 32 };

/**
 * Follows the Services of every family. A port that both families serve on all addresses is one socket, because the runtime
 * cannot open an IPv6 one that leaves IPv4 alone; it answers each client for the client's own family, and 503 where the
 * Service is not of that family.
 */
export class ServiceHealthServers {
  readonly #options: ServiceHealthOptions;
  readonly #families = new Map<IpFamily, Map<NamespacedName, Health>>();
  /** Open sockets by host and port. */
  readonly #open = new Map<string, { readonly service: NamespacedName; readonly listener: Listener }>();
  #conflicts: ReadonlyMap<NamespacedName, PortConflict> = new Map();
  #work: Promise<void> = Promise.resolve();
  #retry: ReturnType<typeof setTimeout> | undefined;
  #stopped = false;

  constructor(options: ServiceHealthOptions) {
    this.#options = options;
  }

  /** Takes the state after a successful sync of one family. Ports are opened and closed in the background. */
  update(family: IpFamily, state: ProxyState, changed: Changed): void {
    const known = this.#families.get(family) ?? new Map<NamespacedName, Health>();
    this.#families.set(family, known);
    let haveOthers = changed === "all";
    if (changed === "all") known.clear();
    for (const name of changed === "all" ? state.services.keys() : changed) {
      const health = healthOf(name, state);
      if (known.get(name)?.port !== health?.port) haveOthers = true;
      if (health === null) known.delete(name);
      else known.set(name, health);
    }
    if (haveOthers || this.#conflicts.size > 0) this.#reconcileSoon();
  }

  /** Resolves when every port is as the last update wants it. */
  async settled(): Promise<void> {
    await this.#work;
  }

  /** Closes all ports. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#retry);
    await this.#work;
    await this.#close(() => true);
  }

  #reconcileSoon(): void {
    this.#work = this.#work.then(() => this.#reconcile());
  }

  async #reconcile(): Promise<void> {
    clearTimeout(this.#retry);
    if (this.#stopped) return;
    const conflicts = new Map<NamespacedName, PortConflict>();
    const wanted = this.#wanted(conflicts);
    await this.#close((service, key) => wanted.get(key)?.service !== service);
    for (const [key, place] of wanted) {
      const { service, port, host } = place;
      if (this.#open.has(key) || conflicts.has(service)) continue;
      try {
        this.#openAt(key, place);
        this.#options.log.info("Opened health check node port", { service, port, address: host }, 2);
      } catch (error) {
        conflicts.set(service, { service, port, message: errorText(error) });
      }
    }
    // A Service answers on all of its addresses or on none, so that a load balancer sees one truth.
    await this.#close((service) => conflicts.has(service));
    this.#report(conflicts);
    if (conflicts.size > 0) this.#retryLater();
  }

  #retryLater(): void {
    clearTimeout(this.#retry);
    if (this.#stopped) return;
    this.#retry = setTimeout(() => this.#reconcileSoon(), this.#options.retryMs ?? RETRY_MS);
  }

  #report(conflicts: ReadonlyMap<NamespacedName, PortConflict>): void {
    const { log, onConflict, onConflictCount } = this.#options;
    const before = this.#conflicts;
    this.#conflicts = conflicts;
    for (const [service, conflict] of conflicts) {
      const { port, message } = conflict;
      if (before.get(service)?.port === port && before.get(service)?.message === message) continue;
      log.error("Cannot open health check node port", message, { service, port });
      onConflict?.(conflict);
    }
    for (const [service, { port }] of before) {
      if (conflicts.has(service)) continue;
      log.info("Health check node port is no longer in conflict", { service, port });
    }
    if (before.size !== conflicts.size) onConflictCount?.(conflicts.size);
  }

  /** Sockets to open, by host and port; a port of two Services goes to its owner, else to the first by name. */
  #wanted(conflicts: Map<NamespacedName, PortConflict>): Map<string, Place> {
    const services = new Map<NamespacedName, Map<IpFamily, number>>();
    for (const [family, known] of this.#families) {
      for (const [service, { port }] of known) {
        services.set(service, (services.get(service) ?? new Map<IpFamily, number>()).set(family, port));
      }
    }
    const owners = new Set([...this.#open.values()].map(({ service }) => service));
    const inOrder = [...services].sort(([left], [right]) =>
      Number(owners.has(right)) - Number(owners.has(left)) || compareBytes(left, right)
    );
    const addresses = { IPv4: this.#addresses("IPv4"), IPv6: this.#addresses("IPv6") };
    const wanted = new Map<string, Place>();
    for (const [service, ports] of inOrder) {
      for (const [host, port] of placesOf(ports, addresses)) {
        const key = `${host} ${port}`;
        const owner = wanted.get(key)?.service;
        if (owner === undefined) wanted.set(key, { service, host, port });
        else if (owner !== service) {
          conflicts.set(service, { service, port, message: `it is that of ${owner} too` });
        }
      }
    }
    return wanted;
  }

  #addresses(family: IpFamily): ListenAddresses {
    try {
      return this.#options.addresses(family);
    } catch (error) {
      this.#options.log.error("Cannot list the node's addresses, using all of them", error, { family });
      return "all";
    }
  }

  /**
   * Opens a socket. If it ends by itself, it is opened again, like one that could not be opened.
   *
   * @throws {Error} if the system refuses, or too few descriptors would be left for the programs that write the rules
   */
  #openAt(key: string, { service, port, host }: Place): void {
    const { pool } = this.#options;
    if (!pool.allowance.take()) {
      pool.failed(LANE);
      throw new Error("too few file descriptors are left: the process needs a higher limit of open files");
    }
    let listener: Listener;
    try {
      listener = this.#listen({ service, port, host });
    } catch (error) {
      pool.allowance.giveBack();
      pool.failed(LANE);
      throw error;
    }
    this.#open.set(key, { service, listener });
    void listener.finished.then(() => {
      pool.allowance.giveBack();
      if (this.#open.get(key)?.listener !== listener) return;
      this.#open.delete(key);
      const message = "it stopped listening by itself";
      this.#report(new Map(this.#conflicts).set(service, { service, port, message }));
      this.#retryLater();
    });
  }

  #listen({ service, port, host }: Place): Listener {
    const { log, isProxyHealthy, pool, onConflict, listen: open = listen } = this.#options;
    return open({
      host,
      port,
      ipv4Only: host === EVERY_IPV4,
      handler: (_request, { family }) => {
        const localEndpoints = this.#families.get(family)?.get(service)?.localEndpoints ?? 0;
        return serviceHealthAnswer(service, localEndpoints, isProxyHealthy());
      },
      onError: (error) => log.error("Cannot answer a health check", error, { service, port }),
      onAcceptFailure: (error) => {
        log.error("Cannot accept health checks, will try again", error, { service, port });
        onConflict?.({ service, port, message: `cannot accept connections: ${errorText(error)}` });
      },
      pool,
      // A lane of its own: clients of one Service never take the connections of another.
      lane: { ...LANE },
    });
  }

  async #close(isClosed: (service: NamespacedName, key: string) => boolean): Promise<void> {
    const closing = [...this.#open].filter(([key, { service }]) => isClosed(service, key));
    for (const [key] of closing) this.#open.delete(key);
    await Promise.all(closing.map(([, { listener }]) => listener.close()));
  }
}

const EVERY_IPV4 = "0.0.0.0";
const EVERY_ADDRESS = "::";

/** Hosts and ports to open for a Service in its families. Both have the same port; between two syncs they may not. */
function placesOf(
  ports: ReadonlyMap<IpFamily, number>,
  addresses: Readonly<Record<IpFamily, ListenAddresses>>,
): (readonly [host: string, port: number])[] {
  const wildcard = addresses.IPv6 === "all" ? EVERY_ADDRESS : EVERY_IPV4;
  const everywhere = new Set([...ports].flatMap(([family, port]) => addresses[family] === "all" ? port : []));
  const single = [...ports].flatMap(([family, port]) => {
    const hosts = addresses[family];
    // A socket for all addresses of both families leaves none to listen on singly.
    if (hosts === "all" || (everywhere.has(port) && wildcard === EVERY_ADDRESS)) return [];
    return hosts.map((host) => [host, port] as const);
  });
  return [...[...everywhere].map((port) => [wildcard, port] as const), ...single];
}

/** A Service's health check node port and its ready endpoints on this node, each IP once; null: it has no such port. */
function healthOf(name: NamespacedName, { services, endpoints }: ProxyState): Health | null {
  const port = services.get(name)?.find(({ healthCheckNodePort }) => healthCheckNodePort !== 0);
  if (port === undefined) return null;
  const ips = new Set<string>();
  for (const ofPort of endpoints.get(name)?.values() ?? []) {
    for (const { isLocal, ready, ip } of ofPort) if (isLocal && ready) ips.add(ip);
  }
  return { port: port.healthCheckNodePort, localEndpoints: ips.size };
}

/**
 * 200 if this node has ready endpoints of the Service and the proxy is healthy, else 503.
 *
 * @param localEndpoints ready endpoints on this node, by IP
 */
export function serviceHealthAnswer(
  service: NamespacedName,
  localEndpoints: number,
  serviceProxyHealthy: boolean,
): Response {
  const body = { service: splitNamespacedName(service), localEndpoints, serviceProxyHealthy };
  return jsonAnswer(JSON.stringify(body, null, "\t"), {
    status: localEndpoints !== 0 && serviceProxyHealthy ? 200 : 503,
    headers: { "x-load-balancing-endpoint-weight": String(localEndpoints) },
  });
}

/** Every address of the family, or these. */
export type ListenAddresses = "all" | readonly string[];

/**
 * Those of the node's addresses that serve node ports. Link-local ones are left out: a socket on one would need to name an
 * interface.
 *
 * @param interfaceIps addresses of all interfaces, both families
 * @throws {SyntaxError} if `nodePortAddresses` holds something that is no network
 */
export function nodePortListenAddresses(
  family: IpFamily,
  config: Pick<KubeProxyConfiguration, "nodePortAddresses" | "bindAddress">,
  node: NodeObject | null,
  interfaceIps: readonly string[],
): ListenAddresses {
  const addresses = nodePortAddresses(family, config.nodePortAddresses, nodeIps(node, config.bindAddress));
  if (addresses.matchAll) return "all";
  return matchingNodeIps(addresses, interfaceIps).filter((ip) => !/^fe[89ab][0-9a-f]:/.test(ip));
}
