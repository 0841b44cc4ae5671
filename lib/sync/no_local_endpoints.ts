/**
 * Which traffic is dropped on this node because a Local traffic policy finds no endpoint on it.
 *
 * @module
 */
import { categorizeEndpoints, hasExternalEndpoints, hasInternalEndpoints } from "../model/endpoint.ts";
import type { NamespacedName } from "../model/objects.ts";
import type { Changed, ProxyState, ServicePort } from "../model/state.ts";

/** Service ports that have endpoints, but none for this kind of traffic. */
export interface NoLocalEndpoints {
  readonly internal: number;
  readonly external: number;
}

/** Counts them for one family, looking only at what changed. Counts ports, as kube-proxy does. */
export class NoLocalEndpointsCount {
  readonly #services = new Map<NamespacedName, NoLocalEndpoints>();

  /** Takes over what a sync has reached. */
  update(state: ProxyState, changed: Changed): void {
    if (changed === "all") this.#services.clear();
    for (const name of changed === "all" ? state.services.keys() : changed) {
      this.#services.delete(name);
      const ports = state.services.get(name)?.filter(isLocal) ?? [];
      if (ports.length === 0) continue;
      const counts = count(name, ports, state);
      if (counts.internal + counts.external > 0) this.#services.set(name, counts);
    }
  }

  get total(): NoLocalEndpoints {
    let [internal, external] = [0, 0];
    for (const counts of this.#services.values()) {
      internal += counts.internal;
      external += counts.external;
    }
    return { internal, external };
  }
}

function isLocal(port: ServicePort): boolean {
  return port.internalPolicyLocal || port.externalPolicyLocal;
}

function count(name: NamespacedName, ports: readonly ServicePort[], state: ProxyState): NoLocalEndpoints {
  const byPort = state.endpoints.get(name);
  let [internal, external] = [0, 0];
  for (const port of ports) {
    const endpoints = categorizeEndpoints(byPort?.get(port.key) ?? [], port, state.node);
    if (!endpoints.hasAny) continue;
    if (!hasInternalEndpoints(port, endpoints)) internal++;
    if (!hasExternalEndpoints(port, endpoints)) external++;
  }
  return { internal, external };
}
