/**
 * The part of a state that a few Services are: their rules are made in no time, however many others there are.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";

/** The state as if there were only these Services. How many endpoints there are in all stays: rules depend on it. */
export function partOfState(state: ProxyState, names: readonly NamespacedName[]): ProxyState {
  const { services, endpoints, family, node, endpointCount, tooLarge } = state;
  const none = new Map<string, never>();
  return {
    family,
    node,
    services: new Map(names.map((name) => [name, services.get(name) ?? []])),
    endpoints: new Map(names.map((name) => [name, endpoints.get(name) ?? none])),
    endpointCount,
    tooLarge,
  };
}

/** Of all ports. */
export function countEndpoints({ endpoints }: ProxyState): number {
  let count = 0;
  for (const ports of endpoints.values()) {
    for (const list of ports.values()) count += list.length;
  }
  return count;
}

/** Services that packets to this destination, or to another port of its address, may be meant for. */
export function servicesAt({ services }: ProxyState, ip: string, port: number): readonly NamespacedName[] {
  const names: NamespacedName[] = [];
  for (const [name, ports] of services) {
    if (ports.some((one) => isAt(one, ip, port))) names.push(name);
  }
  return names;
}

function isAt(one: ServicePort, ip: string, port: number): boolean {
  if (one.clusterIP === ip || one.externalIPs.includes(ip) || one.loadBalancerVIPs.includes(ip)) return true;
  return port !== 0 && (one.nodePort === port || one.healthCheckNodePort === port);
}
