/**
 * Which traffic is dropped on this node because a Local traffic policy finds no endpoint on it.
 *
 * @module
 */
import {
  type CategorizedEndpoints,
  categorizeEndpoints,
  hasExternalEndpoints,
  hasInternalEndpoints,
} from "../model/endpoint.ts";
import type { NamespacedName } from "../model/objects.ts";
import type { Changed, ProxyState, ServicePort } from "../model/state.ts";

/** What is counted: ports one by one, or in IPVS mode Services, as kube-proxy does. */
export type NoLocalEndpointsUnit = "servicePorts" | "services";

/** Those that have endpoints, but none for this kind of traffic. */
export interface NoLocalEndpoints {
  readonly internal: number;
  readonly external: number;
}

const NONE: NoLocalEndpoints = { internal: 0, external: 0 };

/** Counts them for one family, looking only at what changed. */
export class NoLocalEndpointsCount {
  readonly #unit: NoLocalEndpointsUnit;
  readonly #services = new Map<NamespacedName, NoLocalEndpoints>();
  #total = NONE;

  constructor(unit: NoLocalEndpointsUnit) {
    this.#unit = unit;
  }

  /** Takes over what a sync has reached. */
  update(state: ProxyState, changed: Changed): void {
    if (changed === "all") {
      this.#services.clear();
      this.#total = NONE;
    }
    for (const name of changed === "all" ? state.services.keys() : changed) {
      const ports = state.services.get(name)?.filter(isLocal) ?? [];
      this.#set(name, ports.length === 0 ? NONE : this.#countOf(name, ports, state));
    }
  }

  get total(): NoLocalEndpoints {
    return this.#total;
  }

  #countOf(name: NamespacedName, ports: readonly ServicePort[], state: ProxyState): NoLocalEndpoints {
    return this.#unit === "services" ? judge(name, ports, state) : count(name, ports, state);
  }

  /** The sum goes along: there may be thousands of them, and this is done for each change. */
  #set(name: NamespacedName, counts: NoLocalEndpoints): void {
    const before = this.#services.get(name) ?? NONE;
    this.#total = {
      internal: this.#total.internal - before.internal + counts.internal,
      external: this.#total.external - before.external + counts.external,
    };
    if (counts.internal + counts.external > 0) this.#services.set(name, counts);
    else this.#services.delete(name);
  }
}

function isLocal(port: ServicePort): boolean {
  return port.internalPolicyLocal || port.externalPolicyLocal;
}

function count(name: NamespacedName, ports: readonly ServicePort[], state: ProxyState): NoLocalEndpoints {
  let [internal, external] = [0, 0];
  for (const [port, endpoints] of withEndpoints(name, ports, state)) {
    if (!hasInternalEndpoints(port, endpoints)) internal++;
    if (!hasExternalEndpoints(port, endpoints)) external++;
  }
  return { internal, external };
}

/**
 * A Service counts once, and for every policy that it has as soon as one of its addresses falls under one (kube-proxy 1.36, `syncEndpoint`
 * of IPVS mode).
 */
function judge(name: NamespacedName, ports: readonly ServicePort[], state: ProxyState): NoLocalEndpoints {
  let [internal, external] = [0, 0];
  for (const [port, endpoints] of withEndpoints(name, ports, state)) {
    const isAsked = port.internalPolicyLocal || port.externalPolicyLocal && hasExternalAddress(port);
    if (!isAsked || endpoints.local.length > 0) continue;
    if (port.internalPolicyLocal) internal = 1;
    if (port.externalPolicyLocal) external = 1;
  }
  return { internal, external };
}

function* withEndpoints(
  name: NamespacedName,
  ports: readonly ServicePort[],
  state: ProxyState,
): Generator<readonly [ServicePort, CategorizedEndpoints]> {
  const byPort = state.endpoints.get(name);
  for (const port of ports) {
    const endpoints = categorizeEndpoints(byPort?.get(port.key) ?? [], port, state.node);
    if (endpoints.hasAny) yield [port, endpoints];
  }
}

function hasExternalAddress({ externalIPs, loadBalancerVIPs, nodePort }: ServicePort): boolean {
  return externalIPs.length + loadBalancerVIPs.length > 0 || nodePort !== 0;
}
