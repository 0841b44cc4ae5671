/**
 * What the desired state says about UDP flows: which addresses are translated, and to what.
 *
 * @module
 */
import { joinHostPort } from "../model/ip.ts";
import type { Endpoint, ProxyState, ServicePort } from "../model/state.ts";

/** A snapshot of one family. Addresses are `ip:port` or `[ip]:port`. */
export interface UdpTargets {
  /** Cluster IPs, external IPs and load balancer IPs → where flows to them may lead. */
  readonly frontends: ReadonlyMap<string, ReadonlySet<string>>;
  /** Node port → where flows to it may lead. */
  readonly nodePorts: ReadonlyMap<number, ReadonlySet<string>>;
}

export const NO_UDP_TARGETS: UdpTargets = { frontends: new Map(), nodePorts: new Map() };

/**
 * Yields every UDP frontend of the state with the endpoints that flows to it may lead to, whatever node they are on and
 * whatever traffic policy says: a flow that a live endpoint serves is left alone.
 *
 * Those are the endpoints that are ready or serving. If none is, it is all that are listed: rules refuse new flows then, but
 * a flow to an endpoint that is merely not ready may still be served, while one to an endpoint that is gone never is.
 *
 * Source: kube-proxy 1.36 conntrack reconciler; differs: it takes serving ones only, and leaves every flow of a port alone
 * that has none, also those to addresses that may meanwhile be somebody else's.
 */
export function udpTargets(state: ProxyState): UdpTargets {
  const frontends = new Map<string, Set<string>>();
  const nodePorts = new Map<number, Set<string>>();
  for (const [name, ports] of state.services) {
    for (const port of ports) {
      if (port.protocol !== "UDP") continue;
      const targets = targetKeys(state.endpoints.get(name)?.get(port.key) ?? []);
      for (const ip of frontendIps(port)) addAll(frontends, joinHostPort(ip, port.port), targets);
      if (port.nodePort !== 0) addAll(nodePorts, port.nodePort, targets);
    }
  }
  return { frontends, nodePorts };
}

/** True if there is nothing of UDP to look for. */
export function isEmpty({ frontends, nodePorts }: UdpTargets): boolean {
  return frontends.size === 0 && nodePorts.size === 0;
}

/** Every frontend of either, with what either says of it. */
export function unionOfTargets(one: UdpTargets, other: UdpTargets): UdpTargets {
  const frontends = new Map<string, Set<string>>();
  const nodePorts = new Map<number, Set<string>>();
  for (const targets of [one, other]) {
    for (const [address, keys] of targets.frontends) addAll(frontends, address, keys);
    for (const [port, keys] of targets.nodePorts) addAll(nodePorts, port, keys);
  }
  return { frontends, nodePorts };
}

function targetKeys(endpoints: readonly Endpoint[]): readonly string[] {
  const usable = endpoints.filter(({ ready, serving }) => ready || serving);
  return (usable.length === 0 ? endpoints : usable).map(({ key }) => key);
}

function frontendIps({ clusterIP, externalIPs, loadBalancerVIPs }: ServicePort): readonly string[] {
  return [clusterIP, ...externalIPs, ...loadBalancerVIPs];
}

function addAll<K>(sets: Map<K, Set<string>>, key: K, members: Iterable<string>): void {
  const set = sets.get(key) ?? new Set();
  for (const member of members) set.add(member);
  sets.set(key, set);
}
