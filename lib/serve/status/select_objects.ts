/**
 * Selection of the objects of some Services: a client that wants one of 10,000 need not get all.
 *
 * @module
 */
import { parseIp } from "../../model/ip.ts";
import { namespacedName } from "../../model/names.ts";
import type { ApiObject, EndpointSlice, NamespacedName, Service } from "../../model/objects.ts";

/** Selects the Services that match any of these fields. */
export interface ObjectSelection {
  readonly services?: readonly NamespacedName[];
  /** Cluster IPs, external IPs and load balancer IPs. */
  readonly addresses?: readonly string[];
  /** Node ports, also those for health checks. */
  readonly nodePorts?: readonly number[];
  /** Addresses of endpoints. */
  readonly endpoints?: readonly string[];
}

/** The selection as the query of a URL: `service=shop/web&address=10.96.0.1&nodePort=30080&endpoint=10.244.0.7`, each any number of times. */
export function selectionQuery(selection: ObjectSelection): string {
  const { services = [], addresses = [], nodePorts = [], endpoints = [] } = selection;
  const query = new URLSearchParams([
    ...services.map((name) => ["service", name]),
    ...addresses.map((address) => ["address", address]),
    ...nodePorts.map((port) => ["nodePort", String(port)]),
    ...endpoints.map((address) => ["endpoint", address]),
  ]);
  return query.size === 0 ? "" : `?${query}`;
}

/** The selection in a query; null: all objects. */
export function selectionOf(query: URLSearchParams): ObjectSelection | null {
  const selection = {
    services: query.getAll("service"),
    addresses: query.getAll("address"),
    nodePorts: query.getAll("nodePort").map(Number),
    endpoints: query.getAll("endpoint"),
  };
  return Object.values(selection).every(({ length }) => length === 0) ? null : selection;
}

/**
 * Yields the selected Services with their EndpointSlices, and what is no Service's: Nodes and ServiceCIDRs.
 *
 * @param objects is gone through twice
 */
export function* selectObjects(
  objects: () => Iterable<ApiObject>,
  { services = [], addresses = [], nodePorts = [], endpoints = [] }: ObjectSelection,
): Generator<ApiObject> {
  const names = new Set(services);
  const wantedIps = new Set(addresses.map(canonical));
  const wantedPorts = new Set(nodePorts);
  const wantedEndpoints = new Set(endpoints.map(canonical));
  for (const object of objects()) {
    if (object.kind === "Service" && isMeant(object, wantedIps, wantedPorts)) {
      names.add(namespacedName(object.namespace, object.name));
    } else if (object.kind === "EndpointSlice" && leadsTo(object, wantedEndpoints)) {
      names.add(namespacedName(object.namespace, object.serviceName));
    }
  }
  for (const object of objects()) {
    const owner = ownerOf(object);
    if (owner === null || names.has(owner)) yield object;
  }
}

function ownerOf(object: ApiObject): NamespacedName | null {
  switch (object.kind) {
    case "Service":
      return namespacedName(object.namespace, object.name);
    case "EndpointSlice":
      return namespacedName(object.namespace, object.serviceName);
    default:
      return null;
  }
}

function isMeant(service: Service, ips: ReadonlySet<string>, ports: ReadonlySet<number>): boolean {
  if (ips.size > 0) {
    const { clusterIP, clusterIPs, externalIPs, loadBalancerIngress } = service;
    const has = (address: string): boolean => ips.has(canonical(address));
    if (has(clusterIP) || clusterIPs.some(has) || externalIPs.some(has)) return true;
    if (loadBalancerIngress.some(({ ip }) => has(ip))) return true;
  }
  if (ports.size === 0) return false;
  return service.ports.some(({ nodePort }) => nodePort !== 0 && ports.has(nodePort)) ||
    service.healthCheckNodePort !== 0 && ports.has(service.healthCheckNodePort);
}

function leadsTo(slice: EndpointSlice, ips: ReadonlySet<string>): boolean {
  if (ips.size === 0) return false;
  return slice.endpoints.some(({ address }) => ips.has(canonical(address)));
}

/** Canonical text of an address. Only IPv6 addresses are written in several ways. */
function canonical(address: string): string {
  return address.includes(":") ? parseIp(address)?.text ?? address : address;
}
