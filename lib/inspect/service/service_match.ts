/**
 * The ServicePort of a destination; and notes on its EndpointSlices: why they yield no endpoints, and
 * which endpoints name no node.
 *
 * @module
 */
import { countingSlices } from "../../model/endpoint_slices.ts";
import { namespacedName } from "../../model/names.ts";
import type { ApiObject, EndpointSlice, IpFamily, Protocol } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import { counted, few } from "../../text/words.ts";

/** Kind of the Service's address, or port, that a packet is sent to. */
export type DestinationKind =
  | "cluster IP"
  | "external IP"
  | "load-balancer IP"
  | "node port"
  | "health-check node port";

/** A ServicePort, and the kind of address that it was reached by. */
export interface ServiceMatch {
  readonly port: ServicePort;
  readonly kind: DestinationKind;
}

/** E.g. `http 80/TCP`. */
export function portText({ portName, port, protocol }: ServicePort): string {
  return `${portName === "" ? "" : `${portName} `}${port}/${protocol}`;
}

/** The ServicePort's own addresses; those of the node are not among them. */
export function addressesOf({ clusterIP, externalIPs, loadBalancerVIPs }: ServicePort): readonly string[] {
  return [clusterIP, ...externalIPs, ...loadBalancerVIPs];
}

export interface Destination {
  /** Canonical address. */
  readonly ip: string;
  readonly port: number;
  /** Null: a protocol that Services do not have. */
  readonly protocol: Protocol | null;
  /** True: the address is the node's own. */
  readonly isNodeAddress: boolean;
}

/** Result of a search for a destination's ServicePort. */
export interface ServiceSearch {
  readonly match: ServiceMatch | null;
  /** If none matches: ports of Services with that address. */
  readonly sameAddress: readonly ServicePort[];
}

export function findService({ services }: ProxyState, destination: Destination): ServiceSearch {
  const { ip, port, protocol, isNodeAddress } = destination;
  const sameAddress: ServicePort[] = [];
  let byNodePort: ServiceMatch | null = null;
  for (const ports of services.values()) {
    for (const one of ports) {
      const kind = addressKind(one, ip);
      if (kind !== null) {
        if (one.port === port && one.protocol === protocol) {
          return { match: { port: one, kind }, sameAddress: [] };
        }
        sameAddress.push(one);
      }
      if (!isNodeAddress) continue;
      if (one.nodePort === port && port !== 0 && one.protocol === protocol) {
        byNodePort = { port: one, kind: "node port" };
      } else if (one.healthCheckNodePort === port && port !== 0 && protocol === "TCP") {
        byNodePort ??= { port: one, kind: "health-check node port" };
      }
    }
  }
  return { match: byNodePort, sameAddress };
}

function addressKind(port: ServicePort, ip: string): DestinationKind | null {
  if (port.clusterIP === ip) return "cluster IP";
  if (port.loadBalancerVIPs.includes(ip)) return "load-balancer IP";
  return port.externalIPs.includes(ip) ? "external IP" : null;
}

/** Slices mirrored from a v1 Endpoints object are named after it. */
const OF_ENDPOINTS = /^endpoints\/([^/]+)\/.*$/;

/** Slices of the port's Service that are used. */
function slicesOf({ namespacedName: service }: ServicePort, objects: readonly ApiObject[]): EndpointSlice[] {
  const all = objects.filter((object): object is EndpointSlice =>
    object.kind === "EndpointSlice" && namespacedName(object.namespace, object.serviceName) === service
  );
  const byFamily = Map.groupBy(all, ({ addressType }) => addressType);
  return [...byFamily.values()].flatMap((slices) => countingSlices(slices));
}

/**
 * Why a ServicePort has no endpoints, as the end of a sentence, e.g. `EndpointSlice web-1 is empty`.
 *
 * @param objects may include those of other Services
 */
export function endpointLack(port: ServicePort, family: IpFamily, objects: readonly ApiObject[]): string {
  const all = slicesOf(port, objects);
  const [, name = ""] = port.namespacedName.split("/");
  if (all.length === 0) return `no EndpointSlice has the label kubernetes.io/service-name=${name}`;
  const slices = all.filter(({ addressType }) => addressType === family);
  if (slices.length === 0) {
    const types = [...new Set(all.map(({ addressType }) => addressType))].sort();
    return `its EndpointSlices are of ${types.join(" and ")} only`;
  }
  const filled = slices.filter(({ endpoints }) => endpoints.length > 0);
  if (filled.length === 0) return `${sliceNames(slices)} ${slices.length === 1 ? "is" : "are"} empty`;
  const named = filled.filter(({ ports }) => ports.some((one) => (one.name ?? "") === port.portName));
  const count = filled.reduce((sum, { endpoints }) => sum + endpoints.length, 0);
  const wanted = port.portName === "" ? "without a name" : `named ${port.portName}`;
  if (named.length === 0) {
    return `${sliceNames(filled)} ${filled.length === 1 ? "has" : "have"} ${
      counted(count, "endpoint")
    } and ` +
      `no port ${wanted} (ports: ${portNames(filled)})`;
  }
  const isOfProtocol = named.some(({ ports }) =>
    ports.some(({ name, protocol }) => (name ?? "") === port.portName && protocol === port.protocol)
  );
  return isOfProtocol
    ? `none of the ${counted(count, "endpoint")} of ${sliceNames(named)} has a usable address and port`
    : `the port ${wanted} of ${sliceNames(named)} is not ${port.protocol}`;
}

function sliceNames(slices: readonly EndpointSlice[]): string {
  const [first] = slices;
  const endpoints = first === undefined ? undefined : OF_ENDPOINTS.exec(first.name)?.[1];
  if (endpoints !== undefined) return `Endpoints ${endpoints}`;
  return `EndpointSlice${slices.length === 1 ? "" : "s"} ${few(slices.map(({ name }) => name))}`;
}

function portNames(slices: readonly EndpointSlice[]): string {
  const names = slices.flatMap(({ ports }) =>
    ports.map(({ name, port }) => (name ?? "") === "" ? String(port ?? "without a number") : name ?? "")
  );
  return names.length === 0 ? "none" : few([...new Set(names)]);
}

/** Notes endpoints without a node name, which policy Local leaves out. */
export function unplacedNotes(port: ServicePort, objects: readonly ApiObject[]): readonly string[] {
  if (!port.internalPolicyLocal && !port.externalPolicyLocal) return [];
  const addresses = slicesOf(port, objects).flatMap(({ endpoints }) =>
    endpoints.filter(({ nodeName }) => nodeName === "").map(({ address }) => address)
  );
  if (addresses.length === 0) return [];
  return [
    `No node is named for ${few([...new Set(addresses)])} in ${port.namespacedName}'s EndpointSlices: ` +
    "policy Local leaves out what is on no known node",
  ];
}
