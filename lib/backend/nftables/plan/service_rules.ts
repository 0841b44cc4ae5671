/**
 * What one Service wants in the kernel: nearly always elements of the shared maps and nothing else.
 *
 * @module
 */
import {
  type CategorizedEndpoints,
  categorizeEndpoints,
  hasExternalEndpoints,
  hasInternalEndpoints,
} from "../../../model/endpoint.ts";
import type { Ip } from "../../../model/ip.ts";
import { isExternallyAccessible } from "../../../model/service_port.ts";
import type { Endpoint, NodeFacts, ServicePort, ServicePortKey } from "../../../model/state.ts";
import { planAffinity } from "./affinity_rules.ts";
import { MAX_ENDPOINTS } from "./base_rules.ts";
import {
  CLUSTER_IPS_SET,
  elementComment,
  endpointMapName,
  FIREWALL_IPS_MAP,
  HAIRPIN_SET,
  NO_ENDPOINT_NODEPORTS_MAP,
  NO_ENDPOINT_SERVICES_MAP,
  NODEPORT_TRAFFIC_IN_SET,
  NODEPORT_TRAFFIC_OUT_SET,
  PROTOCOL_WORDS,
  type ProtocolWord,
  REJECT_CHAIN,
  SERVICE_IPS_MAP,
  SERVICE_NODEPORTS_MAP,
  SERVICE_TRAFFIC_IN_SET,
  SERVICE_TRAFFIC_OUT_SET,
  type ServiceChains,
  serviceChains,
} from "./chains.ts";
import { hasFirewall, planFirewall } from "./firewall_rules.ts";
import type { Chain, Container, Element } from "../../../netfilter/nft_objects.ts";
import type { Destination, EndpointList, ServiceRules } from "./ruleset.ts";
import type { RuleWords, SharedChains } from "./shared_chains.ts";

/** What all Services of one plan share. */
export interface ServiceRulesContext {
  readonly node: NodeFacts;
  /** The node's own address; null if it has none of this family. */
  readonly nodeIp: Ip | null;
  readonly words: RuleWords;
  readonly sharedChains: SharedChains;
  readonly trafficCounters: boolean;
}

/** What is written for one Service. */
class ServiceDraft {
  readonly elements: Element[] = [];
  readonly sharedElements = new Map<string, Element>();
  readonly lists: EndpointList[] = [];
  readonly chains: Chain[] = [];
  readonly affinitySets: Container[] = [];
  readonly #destinations = new Set<string>();

  /** False if an earlier port of the Service has the destination already. */
  claim(destination: string): boolean {
    if (this.#destinations.has(destination)) return false;
    this.#destinations.add(destination);
    return true;
  }

  share(container: string, key: string): void {
    this.sharedElements.set(`${container} ${key}`, { container, key, value: "" });
  }

  rules(): ServiceRules {
    return {
      elements: this.elements,
      sharedElements: [...this.sharedElements.values()],
      lists: this.lists,
      chains: this.chains,
      affinitySets: this.affinitySets,
    };
  }
}

/** Everything one ServicePort wants. */
class PortDraft {
  readonly #servicePort: ServicePort;
  readonly #endpoints: CategorizedEndpoints;
  readonly #context: ServiceRulesContext;
  readonly #draft: ServiceDraft;
  readonly #protocol: ProtocolWord;
  readonly #comment: string;
  /** Of chains of its own; null if it needs none. */
  readonly #names: ServiceChains | null;
  readonly #sticky: boolean;
  readonly #clusterDestinations: Destination[] = [];
  readonly #localDestinations: Destination[] = [];

  constructor(
    servicePort: ServicePort,
    endpoints: readonly Endpoint[],
    context: ServiceRulesContext,
    draft: ServiceDraft,
  ) {
    this.#servicePort = servicePort;
    this.#endpoints = limited(categorizeEndpoints(endpoints, servicePort, context.node));
    this.#context = context;
    this.#draft = draft;
    this.#protocol = PROTOCOL_WORDS[servicePort.protocol];
    this.#comment = elementComment(servicePort.text);
    this.#sticky = servicePort.stickyMaxAgeSeconds > 0 && this.#endpoints.allReachable.length > 0;
    this.#names = this.#sticky || hasFirewall(servicePort) ? serviceChains(servicePort) : null;
  }

  plan(): void {
    const { clusterIP, externalIPs, loadBalancerVIPs, nodePort, protocol } = this.#servicePort;
    this.#addOwnChains();
    this.#draft.share(CLUSTER_IPS_SET, clusterIP);
    this.#addClusterIp(clusterIP);
    const external = new Set([...externalIPs, ...loadBalancerVIPs]);
    for (const ip of external) this.#addExternalIp(ip, loadBalancerVIPs.includes(ip));
    if (nodePort !== 0) this.#addNodePort(nodePort);
    for (const { isLocal, ip, port } of this.#endpoints.allReachable) {
      if (isLocal) this.#draft.share(HAIRPIN_SET, `${ip} . ${ip} . ${PROTOCOL_WORDS[protocol]} . ${port}`);
    }
    this.#addList(this.#clusterDestinations, this.#endpoints.cluster);
    this.#addList(this.#localDestinations, this.#endpoints.local);
  }

  #addOwnChains(): void {
    if (this.#names === null) return;
    const { words, nodeIp } = this.#context;
    if (this.#sticky) {
      const external = isExternallyAccessible(this.#servicePort);
      const own = planAffinity(this.#servicePort, this.#endpoints, this.#names, external, words);
      this.#draft.chains.push(...own.chains);
      this.#draft.affinitySets.push(...own.sets);
    }
    if (hasFirewall(this.#servicePort)) {
      this.#draft.chains.push(planFirewall(this.#servicePort, this.#names.firewall, nodeIp, words));
    }
  }

  #addClusterIp(ip: string): void {
    const claim = this.#claimIp(ip);
    if (claim === null) return;
    if (!hasInternalEndpoints(this.#servicePort, this.#endpoints)) {
      this.#addVerdict(NO_ENDPOINT_SERVICES_MAP, claim);
      return;
    }
    const { internalPolicyLocal: local } = this.#servicePort;
    if (this.#sticky && this.#names !== null) {
      this.#add(SERVICE_IPS_MAP, claim, `goto ${local ? this.#names.local : this.#names.cluster}`);
      return;
    }
    const map = { protocol: this.#protocol, nodePort: false, local };
    const { cluster, local: localOnes } = this.#endpoints;
    const chain = this.#context.sharedChains.choice(map, (local ? localOnes : cluster).length);
    this.#add(SERVICE_IPS_MAP, claim, `goto ${chain}`);
    (local ? this.#localDestinations : this.#clusterDestinations).push({
      container: endpointMapName(map),
      prefix: `${ip} . ${this.#servicePort.port}`,
    });
  }

  #addExternalIp(ip: string, isLoadBalancer: boolean): void {
    const claim = this.#claimIp(ip);
    if (claim === null) return;
    if (isLoadBalancer && this.#names !== null && hasFirewall(this.#servicePort)) {
      this.#add(FIREWALL_IPS_MAP, claim, `goto ${this.#names.firewall}`);
    }
    this.#addExternal(SERVICE_IPS_MAP, NO_ENDPOINT_SERVICES_MAP, claim, `${ip} . ${this.#servicePort.port}`);
  }

  #addNodePort(nodePort: number): void {
    const claim = `${this.#protocol} . ${nodePort}`;
    if (!this.#draft.claim(claim)) return;
    this.#addCounters(claim, [NODEPORT_TRAFFIC_IN_SET, NODEPORT_TRAFFIC_OUT_SET]);
    this.#addExternal(SERVICE_NODEPORTS_MAP, NO_ENDPOINT_NODEPORTS_MAP, claim, String(nodePort));
  }

  /** Traffic from outside, to an address or a node port. */
  #addExternal(dispatchMap: string, noEndpointMap: string, claim: string, prefix: string): void {
    const { externalPolicyLocal } = this.#servicePort;
    const { hasAny, cluster, local } = this.#endpoints;
    if (!hasExternalEndpoints(this.#servicePort, this.#endpoints)) this.#addVerdict(noEndpointMap, claim);
    // Without any here a policy Local still serves pods and the node itself.
    if (!hasAny) return;
    if (this.#sticky && this.#names !== null) {
      this.#add(dispatchMap, claim, `goto ${this.#names.external}`);
      return;
    }
    const { sharedChains } = this.#context;
    const map = { protocol: this.#protocol, nodePort: dispatchMap === SERVICE_NODEPORTS_MAP, local: false };
    const chain = externalPolicyLocal
      ? sharedChains.localOnly(map, cluster.length, local.length)
      : sharedChains.masqueraded(map, cluster.length);
    this.#add(dispatchMap, claim, `goto ${chain}`);
    this.#clusterDestinations.push({ container: endpointMapName(map), prefix });
    if (externalPolicyLocal && local.length > 0) {
      this.#localDestinations.push({ container: endpointMapName({ ...map, local: true }), prefix });
    }
  }

  /** Null if an earlier port of the Service has the address and port already. */
  #claimIp(ip: string): string | null {
    const claim = `${ip} . ${this.#protocol} . ${this.#servicePort.port}`;
    if (!this.#draft.claim(claim)) return null;
    this.#addCounters(claim, [SERVICE_TRAFFIC_IN_SET, SERVICE_TRAFFIC_OUT_SET]);
    return claim;
  }

  /** With or without endpoints: what was counted stays. */
  #addCounters(claim: string, sets: readonly string[]): void {
    if (!this.#context.trafficCounters) return;
    for (const container of sets) this.#draft.elements.push({ container, key: claim, value: "" });
  }

  /** Without any endpoint the client gets an answer at once; endpoints elsewhere mean that another node should answer. */
  #addVerdict(container: string, key: string): void {
    this.#add(container, key, this.#endpoints.hasAny ? "drop" : `goto ${REJECT_CHAIN}`);
  }

  #add(container: string, key: string, value: string): void {
    this.#draft.elements.push({ container, key, value, comment: this.#comment });
  }

  #addList(destinations: readonly Destination[], endpoints: readonly Endpoint[]): void {
    if (destinations.length === 0) return;
    this.#draft.lists.push({
      destinations,
      endpoints: endpoints.map(({ ip, port }) => `${ip} . ${port}`),
    });
  }
}

/** The first of very many: a slot more than `numgen` counts would never be chosen. */
function limited(endpoints: CategorizedEndpoints): CategorizedEndpoints {
  const { cluster, local } = endpoints;
  return { ...endpoints, cluster: cluster.slice(0, MAX_ENDPOINTS), local: local.slice(0, MAX_ENDPOINTS) };
}

/** All rules of one Service, given its ports and their endpoints; they do not depend on other Services. */
export function planService(
  servicePorts: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  context: ServiceRulesContext,
): ServiceRules {
  const draft = new ServiceDraft();
  for (const servicePort of servicePorts) {
    new PortDraft(servicePort, endpoints?.get(servicePort.key) ?? [], context, draft).plan();
  }
  return draft.rules();
}
