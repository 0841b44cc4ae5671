/**
 * What health check node ports answer to cloud load balancers.
 *
 * @module
 */
import type { NamespacedName } from "./objects.ts";
import type { ProxyState } from "./state.ts";

/** Services that have a health check node port, with the port number. */
export function healthCheckServices(state: ProxyState): Map<NamespacedName, number> {
  const result = new Map<NamespacedName, number>();
  for (const [name, ports] of state.services) {
    for (const port of ports) {
      if (port.healthCheckNodePort !== 0) result.set(name, port.healthCheckNodePort);
    }
  }
  return result;
}

/**
 * Counts each Service's endpoints on this node that are ready, by IP: one that serves several ports counts once. Services
 * without any are absent.
 *
 * @param services the Services to count; all that have endpoints if left out
 */
export function readyLocalEndpointCounts(
  state: ProxyState,
  services: Iterable<NamespacedName> = state.endpoints.keys(),
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
