/**
 * The EndpointSlices of one IP family, by Service, and the endpoints they add up to.
 *
 * @module
 */
import { makeEndpoint } from "./endpoint.ts";
import { parseIp, specialUse } from "./ip.ts";
import { compareBytes, namespacedName } from "./names.ts";
import type { EndpointSlice, IpFamily, NamespacedName, SliceEndpoint, SlicePort } from "./objects.ts";
import { tight } from "../text/kept.ts";
import { own, sentence } from "../text/quote.ts";
import { problemReporter, type Report, type ReportProblem, sameTexts } from "./service_port.ts";
import type { Endpoint, ServicePort, ServicePortKey } from "./state.ts";

/** Endpoints of one Service: port key → endpoints sorted by key; ports without endpoints are absent. */
export type EndpointsByPort = ReadonlyMap<ServicePortKey, readonly Endpoint[]>;

/** Settings of an {@link EndpointSliceCache}. */
export interface EndpointSliceCacheOptions {
  readonly family: IpFamily;
  readonly nodeName: string;
  readonly report?: Report;
}

/**
 * Remembers slices by Service, reports which updates matter, and joins endpoints with the ports that a Service declares. Other ports
 * of a slice cost only the memory of their text: a slice may have 20,000 ports and 1,000 endpoints.
 *
 * Source: kube-proxy EndpointSliceCache; differs: compares only what the proxy reads; notices when a slice changes its
 * owner or address type under the same name; which of several equal endpoints wins does not depend on chance.
 */
export class EndpointSliceCache {
  readonly #family: IpFamily;
  readonly #nodeName: string;
  readonly #report: Report;
  /** Service → its slices as of the last checkout, each name once. Most have one: a map by name would take more than its slice. */
  readonly #applied = new Map<NamespacedName, readonly EndpointSlice[]>();
  /** Service → slice name → its newest value since the last checkout; null: gone. */
  #pending = new Map<NamespacedName, Map<string, EndpointSlice | null>>();
  /** `namespace/slice name` → the Service whose slice it is, pending updates included. */
  readonly #owners = new Map<string, NamespacedName>();

  constructor(options: EndpointSliceCacheOptions) {
    this.#family = options.family;
    this.#nodeName = options.nodeName;
    this.#report = options.report ?? (() => {});
  }

  /**
   * Takes in one slice, or its deletion. Slices of the other family must be offered too: only so is a slice found that
   * changed its address type.
   *
   * @returns true if this very update changed something
   */
  update(slice: EndpointSlice, remove: boolean): boolean {
    const identity = namespacedName(slice.namespace, slice.name);
    const owner = remove ? null : this.#ownerOf(slice, identity);
    const formerOwner = this.#owners.get(identity);
    let changed = false;
    if (formerOwner !== undefined && formerOwner !== owner) {
      changed = this.#setPending(formerOwner, slice.name, null);
      this.#owners.delete(identity);
    }
    if (owner !== null) {
      this.#owners.set(identity, owner);
      if (this.#setPending(owner, slice.name, slice)) changed = true;
    }
    return changed;
  }

  /** Applies what is pending; yields the Services whose slices changed. */
  checkout(): ReadonlyMap<NamespacedName, unknown> {
    const changed = this.#pending;
    this.#pending = new Map();
    for (const [service, changes] of changed) {
      const slices = withChanges(this.#applied.get(service) ?? NO_SLICES, changes);
      if (slices.length === 0) this.#applied.delete(service);
      else this.#applied.set(service, slices);
    }
    return changed;
  }

  /** Number of endpoints that a Service's slices list on each of these ports, duplicates included; it makes no `Endpoint`. */
  listed(service: NamespacedName, declared: readonly ServicePort[]): ReadonlyMap<ServicePortKey, number> {
    const wanted = byName(declared);
    const counts = new Map<ServicePortKey, number>();
    for (const { ports, endpoints } of this.#slicesOf(service)) {
      for (const { key } of usablePorts(ports, wanted)) {
        counts.set(key, (counts.get(key) ?? 0) + endpoints.length);
      }
    }
    return counts;
  }

  /** Slices of a Service that are in use, as of the last checkout. */
  #slicesOf(service: NamespacedName): readonly EndpointSlice[] {
    return countingSlices(this.#applied.get(service) ?? NO_SLICES);
  }

  /**
   * The endpoints of these ports, which are all of one Service, as of the last checkout.
   *
   * @param unreachable receives endpoints that are left out because no pod can have their address: endpoint → reason
   */
  endpointsOf(
    service: NamespacedName,
    declared: readonly ServicePort[],
    unreachable: Map<string, string> = new Map(),
  ): EndpointsByPort {
    const wanted = byName(declared);
    const byPort = new Map<ServicePortKey, Endpoint[]>();
    const slices = declared.length === 0 ? NO_SLICES : this.#slicesOf(service);
    const sorted = slices.toSorted((left, right) => compareBytes(left.name, right.name));
    for (const slice of sorted) this.#collect(slice, { wanted, byPort, unreachable });
    const result: Map<ServicePortKey, readonly Endpoint[]> = byPort;
    for (const [key, endpoints] of byPort) result.set(key, sortedWithoutDuplicates(endpoints));
    return result;
  }

  #ownerOf(slice: EndpointSlice, identity: string): NamespacedName | null {
    if (slice.addressType !== this.#family) {
      if (slice.addressType !== "IPv4" && slice.addressType !== "IPv6") {
        this.#report(
          sentence`EndpointSlice ${
            own(identity)
          }: addressType ${slice.addressType} is not supported; it is ignored`,
        );
      }
      return null;
    }
    if (slice.serviceName === "") {
      this.#report(`EndpointSlice ${identity}: has no label kubernetes.io/service-name; it is ignored`);
      return null;
    }
    return namespacedName(slice.namespace, slice.serviceName);
  }

  #setPending(service: NamespacedName, name: string, slice: EndpointSlice | null): boolean {
    const changes = this.#pending.get(service);
    const slices = this.#applied.get(service) ?? NO_SLICES;
    const pending = changes?.get(name);
    const applied = slices.find((other) => other.name === name) ?? null;
    const known = pending === undefined ? applied : pending;
    const same = slice === null || known === null ? slice === known : sameSlice(known, slice);
    if (same) {
      // An equal slice from a new list: the source keeps the new object too, so the former one can be freed.
      if (slice === null) return false;
      if (pending !== undefined) changes?.set(name, slice);
      else this.#applied.set(service, slices.map((other) => other === applied ? slice : other));
      return false;
    }
    if (changes === undefined) this.#pending.set(service, new Map([[name, slice]]));
    else changes.set(name, slice);
    return true;
  }

  #collect(
    slice: EndpointSlice,
    { wanted, byPort, unreachable }: Collected,
  ): void {
    const reportProblem = problemReporter(`EndpointSlice ${slice.namespace}/${slice.name}`, this.#report);
    const ports = usablePorts(slice.ports, wanted, reportProblem);
    if (ports.length === 0) return;
    for (const source of slice.endpoints) {
      const ip = parseIp(source.address);
      // Never the case for decoded slices.
      if (ip?.family !== this.#family) continue;
      const use = specialUse(ip);
      if (use !== null) {
        unreachable.set(`${ip.text} of EndpointSlice ${slice.namespace}/${slice.name}`, `it is ${use}`);
        continue;
      }
      for (const { key, number } of ports) {
        const endpoint = makeEndpoint(source, ip.text, number, this.#nodeName);
        const endpoints = byPort.get(key);
        if (endpoints === undefined) byPort.set(key, [endpoint]);
        else endpoints.push(endpoint);
      }
    }
  }
}

const NO_SLICES: readonly EndpointSlice[] = [];

/** Slices of a Service to use: those made of v1 Endpoints (in manifests) only if it has no EndpointSlices of their family. */
export function countingSlices(slices: readonly EndpointSlice[]): readonly EndpointSlice[] {
  if (slices.length < 2) return slices;
  const others = slices.filter(({ name }) => !name.startsWith("endpoints/"));
  return others.length === 0 ? slices : others;
}

/** The slices with the changes applied, by slice name; null: deleted. */
function withChanges(
  slices: readonly EndpointSlice[],
  changes: ReadonlyMap<string, EndpointSlice | null>,
): readonly EndpointSlice[] {
  const kept = slices.filter(({ name }) => !changes.has(name));
  return tight([...kept, ...changes.values().filter((slice) => slice !== null)]);
}

/** Collects the endpoints of one Service's slices. */
interface Collected {
  readonly wanted: ReadonlyMap<string, readonly ServicePort[]>;
  readonly byPort: Map<ServicePortKey, Endpoint[]>;
  readonly unreachable: Map<string, string>;
}

/** True if the proxy reads the same from both: ports in any order, endpoints in any order of different addresses. */
function sameSlice(left: EndpointSlice, right: EndpointSlice): boolean {
  if (left === right) return true;
  return sameLists(left.ports, right.ports, comparePorts, samePort) &&
    sameLists(left.endpoints, right.endpoints, compareAddresses, sameSliceEndpoint);
}

function sameLists<T>(
  left: readonly T[],
  right: readonly T[],
  compare: (left: T, right: T) => number,
  same: (left: T, right: T) => boolean,
): boolean {
  if (left.length !== right.length) return false;
  const sameInOrder = (one: readonly T[], two: readonly T[]): boolean =>
    one.every((item, index) => same(item, two[index] as T));
  if (sameInOrder(left, right)) return true;
  // Sorting is stable: what compares equal keeps its order, which decides between duplicates.
  return sameInOrder([...left].sort(compare), [...right].sort(compare));
}

function comparePorts(left: SlicePort, right: SlicePort): number {
  return (left.port ?? 0) - (right.port ?? 0) || compareBytes(left.name ?? "", right.name ?? "") ||
    compareBytes(left.protocol, right.protocol);
}

function samePort(left: SlicePort, right: SlicePort): boolean {
  return left.name === right.name && left.port === right.port && left.protocol === right.protocol;
}

function compareAddresses(left: SliceEndpoint, right: SliceEndpoint): number {
  return compareBytes(left.address, right.address);
}

function sameSliceEndpoint(left: SliceEndpoint, right: SliceEndpoint): boolean {
  return left.address === right.address && left.nodeName === right.nodeName &&
    left.ready === right.ready && left.serving === right.serving && left.terminating === right.terminating &&
    sameTexts(left.zoneHints, right.zoneHints) && sameTexts(left.nodeHints, right.nodeHints);
}

/** Ports by their names: to make the keys of all 20,000 ports that a slice may have would cost a second. */
function byName(declared: readonly ServicePort[]): ReadonlyMap<string, readonly ServicePort[]> {
  return Map.groupBy(declared, ({ portName }) => portName);
}

/** Slice ports that are wanted, each key and number once. */
function usablePorts(
  ports: readonly SlicePort[],
  wanted: ReadonlyMap<string, readonly ServicePort[]>,
  reportProblem: ReportProblem = () => {},
): readonly { readonly key: ServicePortKey; readonly number: number }[] {
  const known = new Set<string>();
  const usable: { readonly key: ServicePortKey; readonly number: number }[] = [];
  ports.forEach(({ name, port: number, protocol }, index) => {
    if (name === null) return reportProblem(sentence`ports[${index}] has no name; it is skipped`);
    if (number === null || number === 0) {
      return reportProblem(sentence`ports[${index}] has no port number; it is skipped`);
    }
    const key = wanted.get(name)?.find((port) => port.protocol === protocol)?.key;
    if (key === undefined) return;
    const identity = `${key} ${number}`;
    if (known.has(identity)) return;
    known.add(identity);
    usable.push({ key, number });
  });
  return usable;
}

/** Sorts by key and keeps, of equal keys, the one that is preferred. The order on entry decides the rest. */
function sortedWithoutDuplicates(endpoints: Endpoint[]): readonly Endpoint[] {
  if (endpoints.length < 2) return tight(endpoints);
  endpoints.sort((left, right) => compareBytes(left.key, right.key));
  const kept: Endpoint[] = [];
  for (const endpoint of endpoints) {
    const last = kept.at(-1);
    if (last === undefined || last.key !== endpoint.key) kept.push(endpoint);
    else kept[kept.length - 1] = preferred(last, endpoint);
  }
  return tight(kept);
}

function preferred(earlier: Endpoint, later: Endpoint): Endpoint {
  if (earlier.terminating !== later.terminating) return later.terminating ? earlier : later;
  if (earlier.isLocal !== later.isLocal) return later.isLocal ? later : earlier;
  return later;
}
