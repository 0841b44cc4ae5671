/**
 * From events to the state of one IP family, in work that grows with the change and not with the cluster.
 *
 * @module
 */
import { AddressPolicy, type ExternalIpPolicy } from "./address_policy.ts";
import { DestinationClaims, type UnservedDestination, type UnservedOfService } from "./destination_claims.ts";
import { sameEndpoints } from "./endpoint.ts";
import { type EndpointsByPort, EndpointSliceCache } from "./endpoint_slices.ts";
import { namespacedName } from "./names.ts";
import type { EndpointSlice, IpFamily, NamespacedName, Service } from "./objects.ts";
import { type Report, sameServicePorts, servicePorts } from "./service_port.ts";
import { sizeProblem } from "./service_size.ts";
import type { NodeFacts, ProxyState, ServicePort } from "./state.ts";

/**
 * An endpoint that is left out, because no pod can have its address, such as a loopback or multicast address: traffic
 * would reach the node itself or its link. API servers refuse most of them, not all, and files may hold any.
 */
export interface UnreachableEndpoint {
  /** The Service that it belongs to. */
  readonly service: NamespacedName;
  /** E.g. `239.1.1.1 of EndpointSlice shop/web-1`. */
  readonly endpoint: string;
  /** E.g. `it is a multicast address`. */
  readonly reason: string;
}

/** Settings of a {@link ChangeTracker}. */
export interface ChangeTrackerOptions {
  /** IP family that is tracked; addresses of the other family are skipped. */
  readonly family: IpFamily;
  /** The node that the state is for. */
  readonly node: NodeFacts;
  /** Which external IPs and load-balancer IPs are served. @default {all} */
  readonly externalIPPolicy?: ExternalIpPolicy;
  /** Receives one line per part of an object that is left out. */
  readonly report?: Report;
  /**
   * Called once for each destination that a Service requests and does not get; with more than `maxReported` at once,
   * with how many more there are.
   */
  readonly onUnserved?: (unserved: UnservedDestination) => void;
  /** Called for each such destination that the Service now gets or no longer requests, with the same limit. */
  readonly onResolved?: (resolved: Omit<UnservedDestination, "reason">) => void;
  /** Called once for each endpoint of a Service that is left out, with the same limit. */
  readonly onUnreachable?: (found: UnreachableEndpoint) => void;
  /** Called for each such endpoint that is no longer listed, with the same limit. */
  readonly onUnreachableGone?: (gone: Omit<UnreachableEndpoint, "reason">) => void;
  /** Called with the number of endpoints that are left out, whenever it changes. */
  readonly onUnreachableCount?: (count: number) => void;
  /** Most destinations or endpoints of a Service that are named at once: it may have thousands. @default {10} */
  readonly maxReported?: number;
  /** Milliseconds since the epoch at which watching began: trigger times up to then say nothing about this process. */
  readonly startedAtMs?: number;
}

/** Changes that one sync takes in, with the resulting state. */
export interface Checkout {
  /** The same object at every checkout; its maps are updated in place by the next one. */
  readonly state: ProxyState;
  /**
   * Services whose ports or endpoints changed, also by another Service's claim to the same destination; some may
   * be deleted.
   */
  readonly updatedServices: ReadonlySet<NamespacedName>;
  /** `last-change-trigger-time` of the slices that changed, in order of arrival. */
  readonly triggerTimesMs: readonly number[];
  /** True if endpoints of a UDP port changed, so that connection tracking may hold flows to the old ones. */
  readonly udpEndpointsChanged: boolean;
  /** True if a Service that has or had a UDP port changed: its addresses, node ports or anything else. */
  readonly udpServicesChanged: boolean;
}

interface MutableState extends ProxyState {
  node: NodeFacts;
  readonly services: Map<NamespacedName, readonly ServicePort[]>;
  readonly endpoints: Map<NamespacedName, EndpointsByPort>;
  readonly tooLarge: Map<NamespacedName, string>;
  endpointCount: number;
}

/**
 * Collects Service and EndpointSlice events and folds them into the state when a sync checks out. Events that cancel out
 * leave no trace.
 *
 * Every slice event must be offered to the trackers of both families.
 */
export class ChangeTracker {
  readonly #report: Report;
  readonly #options: ChangeTrackerOptions;
  readonly #startedAtMs: number;
  readonly #state: MutableState;
  readonly #claims: DestinationClaims;
  readonly #addresses: AddressPolicy;
  /** Services with external addresses, to check against the node's own; empty if the policy allows these. */
  readonly #judgedByNode = new Map<NamespacedName, Service>();
  /** Service → refused address → reason; nearly always empty. */
  readonly #invalid = new Map<NamespacedName, ReadonlyMap<string, string>>();
  readonly #slices: EndpointSliceCache;
  /** Service → endpoint that is left out → reason; nearly always empty. Only of Services that are served. */
  readonly #unreachable = new Map<NamespacedName, ReadonlyMap<string, string>>();
  #unreachableCount = 0;
  /** Services whose ports will differ from those last checked out, with the ports they will have. */
  readonly #pendingServices = new Map<NamespacedName, readonly ServicePort[]>();
  /** Declared ports of the Services that are too large to be served. */
  readonly #tooLarge = new Map<NamespacedName, readonly ServicePort[]>();
  #triggerTimesMs: number[] = [];

  /** Begins with an empty state. */
  constructor(options: ChangeTrackerOptions) {
    this.#report = options.report ?? (() => {});
    this.#options = options;
    this.#startedAtMs = options.startedAtMs ?? -Infinity;
    this.#state = {
      family: options.family,
      node: options.node,
      services: new Map(),
      endpoints: new Map(),
      endpointCount: 0,
      tooLarge: new Map(),
    };
    this.#claims = new DestinationClaims(this.#state.services);
    this.#addresses = new AddressPolicy(options.externalIPPolicy);
    this.#slices = new EndpointSliceCache({
      family: options.family,
      nodeName: options.node.name,
      report: this.#report,
    });
  }

  /**
   * Takes in a new (`old` undefined), changed or deleted (`current` undefined) Service.
   *
   * @returns true if anything about Services is pending, be it from this update or an earlier one
   */
  updateService(old: Service | undefined, current: Service | undefined): boolean {
    const service = current ?? old;
    if (service === undefined) return this.#pendingServices.size > 0;
    const name = namespacedName(service.namespace, service.name);
    const ports = current === undefined ? [] : this.#servicePorts(name, current);
    if (current === undefined) this.#invalid.delete(name);
    if (this.#addresses.guardsNode) {
      if (current !== undefined && hasExternalAddress(current)) this.#judgedByNode.set(name, current);
      else this.#judgedByNode.delete(name);
    }
    if (sameServicePorts(this.#declared(name), ports)) this.#pendingServices.delete(name);
    else this.#pendingServices.set(name, ports);
    return this.#pendingServices.size > 0;
  }

  /**
   * Takes in a new, changed or (`remove`) deleted slice, of whatever family.
   *
   * @returns true if this very update changed something
   */
  updateEndpointSlice(slice: EndpointSlice, remove: boolean): boolean {
    const changed = this.#slices.update(slice, remove);
    const triggerTimeMs = slice.lastChangeTriggerTimeMs;
    // The time in a deleted slice is that of its last update, not of the deletion.
    if (changed && !remove && triggerTimeMs !== null && triggerTimeMs > this.#startedAtMs) {
      this.#triggerTimesMs.push(triggerTimeMs);
    }
    return changed;
  }

  /**
   * Sets the node's own addresses, and checks external IPs and load-balancer IPs of Services against them again.
   *
   * @returns true if anything about Services is pending
   */
  setNodeAddresses(addresses: readonly string[]): boolean {
    if (!this.#addresses.setNodeAddresses(addresses)) return false;
    for (const service of [...this.#judgedByNode.values()]) this.updateService(service, service);
    return this.#pendingServices.size > 0;
  }

  /**
   * Sets the node's zone (`""` for none), at once.
   *
   * @returns true if it differs, so that every Service must be planned again
   */
  setZone(zone: string): boolean {
    if (zone === this.#state.node.zone) return false;
    this.#state.node = { ...this.#state.node, zone };
    return true;
  }

  /** Services with destinations that are not served, as of the last checkout. */
  *unserved(): Generator<UnservedOfService> {
    yield* this.#invalid;
    yield* this.#claims.lost();
  }

  /** Number of Services that the next checkout will change in the state. */
  get pendingServiceCount(): number {
    return this.#pendingServices.size;
  }

  /** Applies the pending changes to the state and clears them. */
  checkout(): Checkout {
    const updatedServices = new Set<NamespacedName>();
    let udpEndpointsChanged = false;
    let udpServicesChanged = false;
    const slicesChanged = this.#slices.checkout();
    this.#leaveOutTooLarge(slicesChanged);
    const portsChanged = this.#claims.update(this.#pendingServices);
    this.#pendingServices.clear();
    const join = (name: NamespacedName, served: readonly ServicePort[]): void => {
      const before = this.#state.endpoints.get(name) ?? NO_ENDPOINTS;
      const unreachable = new Map<string, string>();
      const endpoints = this.#slices.endpointsOf(name, served, unreachable);
      const isSame = sameEndpointsByPort(before, endpoints);
      this.#set(name, served, isSame ? before : endpoints);
      this.#reportUnreachable(name, unreachable);
      if (isSame || !slicesChanged.has(name)) return;
      updatedServices.add(name);
      if (hasUdpPort(before) || hasUdpPort(endpoints)) udpEndpointsChanged = true;
    };
    for (const [name, { served, lost, lostBefore }] of portsChanged) {
      this.#reportUnserved(name, lostBefore, lost);
      const before = this.#state.services.get(name) ?? [];
      // Perhaps only the Service's lost destinations changed.
      if (!sameServicePorts(before, served)) {
        if (served.some(isUdp) || before.some(isUdp)) udpServicesChanged = true;
        updatedServices.add(name);
      }
      join(name, served);
    }
    for (const name of slicesChanged.keys()) {
      if (!portsChanged.has(name)) join(name, this.#state.services.get(name) ?? NO_PORTS);
    }
    const triggerTimesMs = this.#triggerTimesMs;
    this.#triggerTimesMs = [];
    return { state: this.#state, updatedServices, triggerTimesMs, udpEndpointsChanged, udpServicesChanged };
  }

  /** The ports as the Service declares them, whether or not they are served. */
  #declared(name: NamespacedName): readonly ServicePort[] {
    return this.#tooLarge.get(name) ?? this.#claims.declared(name);
  }

  /** Withdraws the ports of Services that became too large, and restores those of Services that no longer are. */
  #leaveOutTooLarge(slicesChanged: ReadonlyMap<NamespacedName, unknown>): void {
    for (const name of this.#pendingServices.keys()) this.#judgeSize(name);
    for (const name of slicesChanged.keys()) if (!this.#pendingServices.has(name)) this.#judgeSize(name);
  }

  #judgeSize(name: NamespacedName): void {
    const ports = this.#pendingServices.get(name) ?? this.#declared(name);
    const problem = ports.length === 0 ? null : sizeProblem(ports, this.#slices.listed(name, ports));
    if (problem !== null) {
      this.#tooLarge.set(name, ports);
      this.#state.tooLarge.set(name, problem);
      this.#pendingServices.set(name, NO_PORTS);
    } else if (this.#tooLarge.delete(name)) {
      this.#state.tooLarge.delete(name);
      this.#pendingServices.set(name, ports);
    }
  }

  #servicePorts(name: NamespacedName, service: Service): readonly ServicePort[] {
    const invalid = new Map<string, string>();
    const ports = servicePorts(
      service,
      this.#state.family,
      this.#report,
      (destination, reason) => invalid.set(destination, reason),
      this.#addresses,
    );
    this.#reportUnserved(name, this.#invalid.get(name) ?? NONE, invalid);
    if (invalid.size > 0) this.#invalid.set(name, invalid);
    else this.#invalid.delete(name);
    return ports;
  }

  /** Reports destinations that are no longer served, and unserved ones that are resolved. */
  #reportUnserved(
    service: NamespacedName,
    before: ReadonlyMap<string, string>,
    now: ReadonlyMap<string, string>,
  ): void {
    const { onUnserved, onResolved } = this.#options;
    this.#reportDifference("destinations", before, now, {
      onNew: (destination, reason) => onUnserved?.({ service, destination, reason }),
      onGone: (destination) => onResolved?.({ service, destination }),
    });
  }

  /** Reports endpoints that are left out from now on, and those that are not any more. */
  #reportUnreachable(service: NamespacedName, now: ReadonlyMap<string, string>): void {
    const before = this.#unreachable.get(service) ?? NONE;
    if (before.size + now.size === 0) return;
    if (now.size > 0) this.#unreachable.set(service, now);
    else this.#unreachable.delete(service);
    const { onUnreachable, onUnreachableGone, onUnreachableCount } = this.#options;
    this.#reportDifference("endpoints", before, now, {
      onNew: (endpoint, reason) => onUnreachable?.({ service, endpoint, reason }),
      onGone: (endpoint) => onUnreachableGone?.({ service, endpoint }),
    });
    this.#unreachableCount += now.size - before.size;
    if (now.size !== before.size) onUnreachableCount?.(this.#unreachableCount);
  }

  /** Reports new and resolved ones by name; of too many at once, how many more there are. */
  #reportDifference(
    what: string,
    before: ReadonlyMap<string, string>,
    now: ReadonlyMap<string, string>,
    { onNew, onGone }: {
      readonly onNew: (name: string, reason: string) => void;
      readonly onGone: (name: string) => void;
    },
  ): void {
    const { maxReported = 10 } = this.#options;
    const found = [...now].filter(([name]) => !before.has(name));
    for (const [name, reason] of found.slice(0, maxReported)) onNew(name, reason);
    const more = found.length - maxReported;
    if (more > 0) onNew(`${more} more ${what}`, "for the same kinds of reasons");
    const gone = [...before.keys()].filter((name) => !now.has(name));
    for (const name of gone.slice(0, maxReported)) onGone(name);
    if (gone.length > maxReported) onGone(`${gone.length - maxReported} more ${what}`);
  }

  #set(name: NamespacedName, ports: readonly ServicePort[], endpoints: EndpointsByPort): void {
    this.#state.endpointCount -= this.#countedEndpoints(name);
    if (ports.length === 0) this.#state.services.delete(name);
    else this.#state.services.set(name, ports);
    if (endpoints.size === 0) this.#state.endpoints.delete(name);
    else this.#state.endpoints.set(name, endpoints);
    this.#state.endpointCount += this.#countedEndpoints(name);
  }

  #countedEndpoints(name: NamespacedName): number {
    let count = 0;
    for (const endpoints of this.#state.endpoints.get(name)?.values() ?? []) count += endpoints.length;
    return count;
  }
}

const NO_ENDPOINTS: EndpointsByPort = new Map();
const NO_PORTS: readonly ServicePort[] = [];
const NONE: ReadonlyMap<string, string> = new Map();

function sameEndpointsByPort(left: EndpointsByPort, right: EndpointsByPort): boolean {
  if (left.size !== right.size) return false;
  for (const [key, endpoints] of left) {
    const others = right.get(key);
    if (others === undefined || !sameEndpoints(endpoints, others)) return false;
  }
  return true;
}

function hasExternalAddress({ externalIPs, loadBalancerIngress }: Service): boolean {
  return externalIPs.length > 0 || loadBalancerIngress.length > 0;
}

function isUdp({ protocol }: ServicePort): boolean {
  return protocol === "UDP";
}

function hasUdpPort(endpoints: EndpointsByPort): boolean {
  for (const key of endpoints.keys()) if (key.endsWith("/UDP")) return true;
  return false;
}
