/**
 * Which ServicePort is served at a destination (an address with protocol and port, or a node port) that several claim.
 * The state has one answer, so all modes have the same, in whatever order events came and after every start.
 *
 * @module
 */
import { compareBytes } from "./names.ts";
import type { NamespacedName } from "./objects.ts";
import type { ServicePort } from "./state.ts";

/** A destination that a Service requests and does not get. */
export interface UnservedDestination {
  /** The Service that requested it. */
  readonly service: NamespacedName;
  /** E.g. `external IP 10.96.0.1 port 443/TCP` or `node port 30080/TCP`. */
  readonly destination: string;
  /** E.g. `it belongs to default/kubernetes`. */
  readonly reason: string;
}

/** A Service and its destinations that are not served: destination → reason. */
export type UnservedOfService = readonly [NamespacedName, ReadonlyMap<string, string>];

/** Unserved destinations of all these Services, one by one. */
export function* eachUnserved(services: Iterable<UnservedOfService>): Generator<UnservedDestination> {
  for (const [service, destinations] of services) {
    for (const [destination, reason] of destinations) yield { service, destination, reason };
  }
}

/** The ports of one Service, as declared and as served. */
export interface ServedPorts {
  readonly declared: readonly ServicePort[];
  /** `declared` itself unless a destination is lost. */
  readonly served: readonly ServicePort[];
  /** Lost destination → reason, e.g. the Service that owns it. */
  readonly lost: ReadonlyMap<string, string>;
}

/** Result of a change for one Service. */
export interface ServiceOutcome extends ServedPorts {
  /** Destinations that were lost before the change. */
  readonly lostBefore: ReadonlyMap<string, string>;
}

/**
 * Order of claims to a destination: the older Service first, then by name. One without a creation time counts as newer
 * than any with one. (Two ports of one Service: by their keys.)
 */
export function compareClaimants(left: ServicePort, right: ServicePort): number {
  const leftTime = left.createdAtSeconds ?? Infinity;
  const rightTime = right.createdAtSeconds ?? Infinity;
  if (leftTime !== rightTime) return leftTime < rightTime ? -1 : 1;
  return compareBytes(left.namespacedName, right.namespacedName) || compareBytes(left.key, right.key);
}

/**
 * All claims of one IP family. Cluster IPs go before everything else; between the others, external IPs and load-balancer IPs
 * alike, and between node ports, {@linkcode compareClaimants} decides. A port that does not get its cluster IP is not served at
 * all, and claims nothing else.
 */
export class DestinationClaims {
  readonly #clusterIps = new Claims();
  readonly #others = new Claims();
  /** Services with lost destinations. */
  readonly #conflicting = new Map<NamespacedName, ServedPorts>();
  readonly #served: ReadonlyMap<NamespacedName, readonly ServicePort[]>;

  /** @param served where the caller keeps what {@linkcode DestinationClaims.update} yields; only Services without loss are looked up */
  constructor(served: ReadonlyMap<NamespacedName, readonly ServicePort[]>) {
    this.#served = served;
  }

  /** The ports as its Service declares them; none if there is no such Service. */
  declared(name: NamespacedName): readonly ServicePort[] {
    return this.#conflicting.get(name)?.declared ?? this.#served.get(name) ?? [];
  }

  /** All Services with lost destinations, and the reasons. */
  *lost(): Generator<UnservedOfService> {
    for (const [name, { lost }] of this.#conflicting) yield [name, lost];
  }

  /**
   * Takes in the new ports of the changed Services (none: deleted). The cost grows with the claims of these Services and
   * of those that gain or lose a destination.
   *
   * @returns the changed Services and all others whose served ports change with them, with their ports from now on
   */
  update(
    changes: ReadonlyMap<NamespacedName, readonly ServicePort[]>,
  ): ReadonlyMap<NamespacedName, ServiceOutcome> {
    const touched = new Holders((destination) => this.#holder(destination));
    const declared = (name: NamespacedName): readonly ServicePort[] =>
      changes.get(name) ?? this.declared(name);
    for (const [name, ports] of changes) {
      for (const port of this.declared(name)) this.#withdraw(port, touched);
      for (const port of ports) {
        const destination = clusterDestination(port);
        touched.add(destination);
        this.#clusterIps.add(destination, port);
      }
    }
    // Only a port that has its cluster IP may claim anything else.
    for (const name of touched.changed(changes.keys())) {
      for (const port of declared(name)) this.#claimOthers(port, touched);
    }
    const outcomes = new Map<NamespacedName, ServiceOutcome>();
    for (const name of touched.changed(changes.keys())) {
      const ports = this.#serve(declared(name));
      outcomes.set(name, { ...ports, lostBefore: this.#conflicting.get(name)?.lost ?? NOTHING });
      if (ports.lost.size > 0) this.#conflicting.set(name, ports);
      else this.#conflicting.delete(name);
    }
    return outcomes;
  }

  #holder(destination: string): ServicePort | undefined {
    return this.#clusterIps.first(destination) ?? this.#others.first(destination);
  }

  #withdraw(port: ServicePort, touched: Holders): void {
    const clusterIp = clusterDestination(port);
    touched.add(clusterIp);
    this.#clusterIps.delete(clusterIp, port);
    for (const destination of otherDestinations(port)) {
      touched.add(destination);
      this.#others.delete(destination, port);
    }
  }

  #claimOthers(port: ServicePort, touched: Holders): void {
    const isServed = this.#hasClusterIp(port);
    for (const destination of otherDestinations(port)) {
      touched.add(destination);
      if (isServed) this.#others.add(destination, port);
      else this.#others.delete(destination, port);
    }
  }

  #hasClusterIp(port: ServicePort): boolean {
    return this.#clusterIps.first(clusterDestination(port))?.key === port.key;
  }

  #serve(declared: readonly ServicePort[]): ServedPorts {
    const lost = new Map<string, string>();
    const served: ServicePort[] = [];
    for (const port of declared) {
      if (this.#hasClusterIp(port)) {
        served.push(this.#servePort(port, lost));
      } else {
        const holder = this.#clusterIps.first(clusterDestination(port));
        lost.set(`cluster IP ${port.clusterIP} ${portText(port.port, port)}`, belongsTo(holder, port));
      }
    }
    return lost.size === 0 ? { declared, served: declared, lost: NOTHING } : { declared, served, lost };
  }

  #servePort(port: ServicePort, lost: Map<string, string>): ServicePort {
    const isGranted = (destination: string, text: string): boolean => {
      const holder = this.#holder(destination);
      if (holder?.key === port.key) return true;
      lost.set(text, belongsTo(holder, port));
      return false;
    };
    const granted = (ips: readonly string[], what: string): readonly string[] =>
      ips.filter((ip) =>
        isGranted(addressDestination(ip, port), `${what} ${ip} ${portText(port.port, port)}`)
      );
    const externalIPs = granted(port.externalIPs, "external IP");
    const loadBalancerVIPs = granted(port.loadBalancerVIPs, "load-balancer IP");
    const hasNodePort = port.nodePort === 0 ||
      isGranted(nodePortDestination(port), `node ${portText(port.nodePort, port)}`);
    return { ...port, externalIPs, loadBalancerVIPs, nodePort: hasNodePort ? port.nodePort : 0 };
  }
}

const NOTHING: ReadonlyMap<string, string> = new Map();

/** Owner of each destination when an update first touched it. */
class Holders {
  readonly #before = new Map<string, ServicePort | undefined>();
  readonly #holder: (destination: string) => ServicePort | undefined;

  constructor(holder: (destination: string) => ServicePort | undefined) {
    this.#holder = holder;
  }

  /** Records the owner; to be called before any claim to the destination changes. */
  add(destination: string): void {
    if (!this.#before.has(destination)) this.#before.set(destination, this.#holder(destination));
  }

  /** These Services, and those that gained or lost a touched destination. */
  changed(names: Iterable<NamespacedName>): ReadonlySet<NamespacedName> {
    const changed = new Set(names);
    for (const [destination, before] of this.#before) {
      const now = this.#holder(destination);
      if (before?.key === now?.key) continue;
      if (before !== undefined) changed.add(before.namespacedName);
      if (now !== undefined) changed.add(now.namespacedName);
    }
    return changed;
  }
}

function addressDestination(ip: string, { port, protocol }: ServicePort): string {
  return `${ip} ${protocol} ${port}`;
}

function clusterDestination(port: ServicePort): string {
  return addressDestination(port.clusterIP, port);
}

function nodePortDestination({ nodePort, protocol }: ServicePort): string {
  return `${protocol} ${nodePort}`;
}

function otherDestinations(port: ServicePort): string[] {
  const { externalIPs, loadBalancerVIPs, nodePort } = port;
  const destinations: string[] = [];
  for (const ip of externalIPs) destinations.push(addressDestination(ip, port));
  for (const ip of loadBalancerVIPs) destinations.push(addressDestination(ip, port));
  if (nodePort !== 0) destinations.push(nodePortDestination(port));
  return destinations;
}

function portText(port: number, { protocol }: ServicePort): string {
  return `port ${port}/${protocol}`;
}

function belongsTo(holder: ServicePort | undefined, { namespacedName }: ServicePort): string {
  if (holder === undefined || holder.namespacedName === namespacedName) {
    return "another port of the Service has it";
  }
  return `it belongs to ${holder.namespacedName}`;
}

/** Destination → the ServicePorts that claim it, the owner first; nearly always one, stored without an array. */
class Claims {
  readonly #claimants = new Map<string, ServicePort | ServicePort[]>();

  first(destination: string): ServicePort | undefined {
    const claimants = this.#claimants.get(destination);
    return Array.isArray(claimants) ? claimants[0] : claimants;
  }

  /** Inserts the claimant in order, or replaces its former version. */
  add(destination: string, claimant: ServicePort): void {
    const known = this.#claimants.get(destination);
    if (known === undefined) {
      this.#claimants.set(destination, claimant);
      return;
    }
    const claimants = Array.isArray(known) ? known : [known];
    const at = placeOf(claimant, claimants);
    claimants.splice(at, isAt(claimants, at, claimant) ? 1 : 0, claimant);
    this.#claimants.set(destination, claimants.length === 1 ? claimant : claimants);
  }

  delete(destination: string, claimant: ServicePort): void {
    const known = this.#claimants.get(destination);
    if (known === undefined) return;
    const claimants = Array.isArray(known) ? known : [known];
    const at = placeOf(claimant, claimants);
    if (!isAt(claimants, at, claimant)) return;
    // In place: thousands may be withdrawn one by one.
    claimants.splice(at, 1);
    if (claimants.length === 0) this.#claimants.delete(destination);
    else if (claimants.length === 1) this.#claimants.set(destination, claimants[0]!);
  }
}

function isAt(claimants: readonly ServicePort[], at: number, claimant: ServicePort): boolean {
  return at < claimants.length && compareClaimants(claimants[at]!, claimant) === 0;
}

/** Index of the claimant, or where to insert it; by bisection, as a thousand may claim one destination. */
function placeOf(claimant: ServicePort, claimants: readonly ServicePort[]): number {
  let from = 0;
  let to = claimants.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (compareClaimants(claimants[middle]!, claimant) < 0) from = middle + 1;
    else to = middle;
  }
  return from;
}
