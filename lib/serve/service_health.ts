/**
 * The servers on health check node ports: one per Service of type LoadBalancer with external policy Local.
 *
 * @module
 */
import { compareBytes } from "../model/names.ts";
import { FAMILIES, type IpFamily, type NamespacedName, type NodeObject } from "../model/objects.ts";
import type { Changed, ProxyState } from "../model/state.ts";
import { errorText, type Logger } from "../observe/log.ts";
import type { ConnectionPool } from "../kernel/connection_pool.ts";
import { type Handler, listen, type Listener } from "./http_listener.ts";
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
  readonly localEndpoints: number;
}

interface Wanted {
  readonly service: NamespacedName;
  readonly port: number;
  readonly host: string;
  readonly ipv4Only: boolean;
}

const RETRY_MS = 30_000;
/** Most open connections of each port: those of a few load balancers. */
const MOST_CONNECTIONS = 32;
const SERVER = "service-health";

/**
 * Follows the Services of every family. A port that both families serve on all addresses is one socket, because the runtime
 * cannot open an IPv6 one that leaves IPv4 alone; it answers each client for the client's own family, and 503 where the
 * Service is not of that family.
 */
export class ServiceHealthServers {
  readonly #options: ServiceHealthOptions;
  readonly #families = new Map<IpFamily, Map<NamespacedName, Health>>();
  /** Open sockets by host and port. */
  readonly #open = new Map<string, Wanted & { readonly listener: Listener }>();
  #conflicts = new Map<NamespacedName, PortConflict>();
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
    const services = healthCheckServices(changed === "all" ? state : only(state, changed));
    const counts = readyLocalEndpointCounts(state, services.keys());
    // Only those named are compared: there may be thousands of others.
    let haveOthers = changed === "all";
    if (changed === "all") known.clear();
    else {
      for (const name of changed) {
        if (known.get(name)?.port !== services.get(name)) haveOthers = true;
        known.delete(name);
      }
    }
    for (const [name, port] of services) known.set(name, { port, localEndpoints: counts.get(name) ?? 0 });
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
    await this.#close([...this.#open.keys()]);
  }

  #reconcileSoon(): void {
    this.#work = this.#work.then(() => this.#reconcile());
  }

  async #reconcile(): Promise<void> {
    clearTimeout(this.#retry);
    if (this.#stopped) return;
    const conflicts = new Map<NamespacedName, PortConflict>();
    const wanted = this.#wanted(conflicts);
    const isWanted = (key: string, service: NamespacedName): boolean => wanted.get(key)?.service === service;
    await this.#close(
      [...this.#open].filter(([key, { service }]) => !isWanted(key, service)).map(([key]) => key),
    );
    for (const [key, listenOn] of wanted) {
      if (this.#open.has(key) || conflicts.has(listenOn.service)) continue;
      const { service, port } = listenOn;
      try {
        this.#keepOpen(key, listenOn, this.#listen(listenOn));
        this.#options.log.info("Opened health check node port", { service, port, address: listenOn.host }, 2);
      } catch (error) {
        conflicts.set(service, { service, port, message: errorText(error) });
      }
    }
    // A Service answers on all of its addresses or on none, so that a load balancer sees one truth.
    const partly = [...this.#open].filter(([, { service }]) => conflicts.has(service)).map(([key]) => key);
    await this.#close(partly);
    this.#report(conflicts);
    if (conflicts.size > 0) this.#retryLater();
  }

  #retryLater(): void {
    clearTimeout(this.#retry);
    if (this.#stopped) return;
    this.#retry = setTimeout(() => this.#reconcileSoon(), this.#options.retryMs ?? RETRY_MS);
  }

  #report(conflicts: Map<NamespacedName, PortConflict>): void {
    const { log, onConflict, onConflictCount } = this.#options;
    const before = this.#conflicts;
    this.#conflicts = conflicts;
    for (const [service, conflict] of conflicts) {
      if (before.get(service)?.port === conflict.port && before.get(service)?.message === conflict.message) {
        continue;
      }
      log.error("Cannot open health check node port", conflict.message, { service, port: conflict.port });
      onConflict?.(conflict);
    }
    for (const [service, { port }] of before) {
      if (!conflicts.has(service)) {
        log.info("Health check node port is no longer in conflict", { service, port });
      }
    }
    if (before.size !== conflicts.size) onConflictCount?.(conflicts.size);
  }

  /** Sockets that should be open, by host and port; a port that two Services request stays with its owner. */
  #wanted(conflicts: Map<NamespacedName, PortConflict>): Map<string, Wanted> {
    const addresses = new Map(FAMILIES.map((family) => [family, this.#addresses(family)]));
    const owners = new Set([...this.#open.values()].map(({ service }) => service));
    const wanted = new Map<string, Wanted>();
    for (const [service, ports] of this.#services(owners)) {
      for (const listenOn of sockets(service, ports, addresses)) {
        const key = `${listenOn.host} ${listenOn.port}`;
        const owner = wanted.get(key);
        if (owner === undefined) wanted.set(key, listenOn);
        else if (owner.service !== service) {
          conflicts.set(service, {
            service,
            port: listenOn.port,
            message: `it is that of ${owner.service} too`,
          });
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

  /** Every Service with its port per family: owners of an open port first, then by name. */
  #services(owners: ReadonlySet<NamespacedName>): [NamespacedName, Map<IpFamily, number>][] {
    const services = new Map<NamespacedName, Map<IpFamily, number>>();
    for (const [family, known] of this.#families) {
      for (const [service, { port }] of known) {
        services.set(service, (services.get(service) ?? new Map<IpFamily, number>()).set(family, port));
      }
    }
    return [...services].sort(([left], [right]) =>
      Number(owners.has(right)) - Number(owners.has(left)) || compareBytes(left, right)
    );
  }

  /** A socket that ends by itself is opened again, as if it had not been possible to open it. */
  #keepOpen(key: string, wanted: Wanted, listener: Listener): void {
    const open = { ...wanted, listener };
    this.#open.set(key, open);
    const { service, port } = wanted;
    void listener.finished.then(() => {
      this.#options.pool.allowance.giveBack();
      if (this.#open.get(key) !== open) return;
      this.#open.delete(key);
      this.#report(
        new Map(this.#conflicts).set(service, { service, port, message: "it stopped listening by itself" }),
      );
      this.#retryLater();
    });
  }

  /**
   * @throws {Error} if the system refuses, or too few descriptors would be left for the programs that write the rules
   */
  #listen({ service, port, host, ipv4Only }: Wanted): Listener {
    const { log, isProxyHealthy, pool, onConflict, listen: open = listen } = this.#options;
    const lane = { server: SERVER, most: MOST_CONNECTIONS };
    const handler: Handler = (_request, { family }) =>
      serviceHealthAnswer(service, this.#localEndpoints(family, service), isProxyHealthy());
    const onError = (error: unknown): void =>
      log.error("Cannot answer a health check", error, { service, port });
    const onAcceptFailure = (error: unknown): void => {
      log.error("Cannot accept health checks, will try again", error, { service, port });
      onConflict?.({ service, port, message: `cannot accept connections: ${errorText(error)}` });
    };
    if (!pool.allowance.take()) {
      pool.failed(lane);
      throw new Error("too few file descriptors are left: the process needs a higher limit of open files");
    }
    try {
      return open({ host, port, handler, onError, onAcceptFailure, pool, lane, ipv4Only });
    } catch (error) {
      pool.allowance.giveBack();
      pool.failed(lane);
      throw error;
    }
  }

  #localEndpoints(family: IpFamily, service: NamespacedName): number {
    return this.#families.get(family)?.get(service)?.localEndpoints ?? 0;
  }

  async #close(keys: readonly string[]): Promise<void> {
    await Promise.all(keys.map(async (key) => {
      const open = this.#open.get(key);
      this.#open.delete(key);
      await open?.listener.close();
    }));
  }
}

/** The sockets that serve a Service's health check port in the families that it has. */
function sockets(
  service: NamespacedName,
  ports: ReadonlyMap<IpFamily, number>,
  addresses: ReadonlyMap<IpFamily, ListenAddresses>,
): Wanted[] {
  const result: Wanted[] = [];
  // Both families of a Service have the same port; in between two syncs they may not.
  const ipv4Only = addresses.get("IPv6") !== "all";
  const everywhere = new Set<number>();
  for (const [family, port] of ports) {
    if (addresses.get(family) !== "all" || everywhere.has(port)) continue;
    everywhere.add(port);
    result.push({ service, port, host: ipv4Only ? "0.0.0.0" : "::", ipv4Only });
  }
  for (const [family, port] of ports) {
    const own = addresses.get(family) ?? "all";
    // A socket for all addresses of both families leaves none to listen on singly.
    if (own === "all" || (everywhere.has(port) && !ipv4Only)) continue;
    result.push(...own.map((host) => ({ service, port, host, ipv4Only: false })));
  }
  return result;
}

function only(state: ProxyState, names: Iterable<NamespacedName>): ProxyState {
  const services = new Map([...names].flatMap((name) => {
    const ports = state.services.get(name);
    return ports === undefined ? [] : [[name, ports] as const];
  }));
  return { ...state, services };
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
  const slash = service.indexOf("/");
  const [namespace, name] = [service.slice(0, slash), service.slice(slash + 1)];
  const body = { service: { namespace, name }, localEndpoints, serviceProxyHealthy };
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

/** Services that have a health check node port, with the port number. */
function healthCheckServices(state: ProxyState): Map<NamespacedName, number> {
  const result = new Map<NamespacedName, number>();
  for (const [name, ports] of state.services) {
    for (const port of ports) {
      if (port.healthCheckNodePort !== 0) result.set(name, port.healthCheckNodePort);
    }
  }
  return result;
}

/** Endpoints on this node that are ready, by IP: one that serves several ports counts once. Services without any are absent. */
function readyLocalEndpointCounts(
  state: ProxyState,
  services: Iterable<NamespacedName>,
): Map<NamespacedName, number> {
  const result = new Map<NamespacedName, number>();
  for (const name of services) {
    const ips = new Set<string>();
    for (const endpoints of state.endpoints.get(name)?.values() ?? []) {
      for (const endpoint of endpoints) if (endpoint.isLocal && endpoint.ready) ips.add(endpoint.ip);
    }
    if (ips.size > 0) result.set(name, ips.size);
  }
  return result;
}
