/**
 * Plans the rules of one Service: nearly always elements of the shared maps and nothing else.
 *
 * @module
 */
import {
  type CategorizedEndpoints,
  categorizeEndpoints,
  hasExternalEndpoints,
  hasInternalEndpoints,
} from "../../../model/endpoint.ts";
import { type Ip, joinHostPort } from "../../../model/ip.ts";
import { isExternallyAccessible } from "../../../model/service_port.ts";
import type { Endpoint, NodeFacts, ServicePort, ServicePortKey } from "../../../model/state.ts";
import { formatMark, letsNodeIn } from "../../planning.ts";
import {
  CHAINS,
  elementComment,
  type EndpointMap,
  endpointMapName,
  type EndpointNames,
  endpointNames,
  FAMILY_WORDS,
  type FamilyWords,
  MAX_ENDPOINTS,
  printedNetwork,
  PROTOCOL_WORDS,
  type ProtocolWord,
  type ServiceChains,
  serviceChains,
  SETS,
} from "./chains.ts";
import type { Chain, Container, Element } from "../../../netfilter/nft_objects.ts";
import type { Destination, EndpointList, NftablesOptions, ServiceRules } from "./ruleset.ts";
import type { LocalDetector } from "../../../model/node.ts";

/** Parts of rules that are the same for all addresses of a family. */
export interface RuleWords extends FamilyWords {
  /** Sets the mark that asks for masquerading. */
  readonly setMark: string;
  /** Matches traffic of pods of this node or cluster; null if nothing distinguishes it. */
  readonly local: string | null;
  /** The opposite of `local`. */
  readonly notLocal: string | null;
}

/**
 * @throws {RangeError} if the masquerade mark is not one bit
 */
export function ruleWords(options: NftablesOptions): RuleWords {
  const words = FAMILY_WORDS[options.family];
  return {
    ...words,
    setMark: `meta mark set meta mark | ${formatMark(options.masqueradeMark)}`,
    ...detectorMatches(options.detector, words),
  };
}

function detectorMatches(
  detector: LocalDetector,
  { ip }: FamilyWords,
): { local: string | null; notLocal: string | null } {
  switch (detector.kind) {
    case "none":
      return { local: null, notLocal: null };
    case "cidr":
      return { local: `${ip} saddr ${detector.cidr}`, notLocal: `${ip} saddr != ${detector.cidr}` };
    case "interface":
      return { local: `iifname "${detector.name}"`, notLocal: `iifname != "${detector.name}"` };
    case "interfacePrefix":
      return { local: `iifname "${detector.prefix}*"`, notLocal: `iifname != "${detector.prefix}*"` };
  }
}

/**
 * The rules of traffic from outside to a Service of policy Local: pods and the node itself get any endpoint.
 *
 * @param cluster chain that chooses among all endpoints
 * @param local chain that chooses among those of this node; null if there are none: the packet is dropped later
 */
function localPolicyRules(words: RuleWords, cluster: string, local: string | null): string[] {
  const rules: string[] = [];
  if (words.local !== null) {
    rules.push(`${words.local} goto ${cluster} comment "short-circuit pod traffic"`);
  }
  rules.push(`fib saddr type local ${words.setMark} comment "masquerade local traffic"`);
  rules.push(`fib saddr type local goto ${cluster} comment "short-circuit local traffic"`);
  if (local !== null) rules.push(`goto ${local}`);
  return rules;
}

/** The rules of traffic from outside to a Service of policy Cluster. */
function clusterPolicyRules(words: RuleWords, cluster: string): string[] {
  return [`${words.setMark} comment "masquerade"`, `goto ${cluster}`];
}

/** The shared chains of one plan, made when first asked for; each goes only to earlier ones. */
export class SharedChains {
  readonly #chains = new Map<string, Chain>();
  readonly #words: RuleWords;

  constructor(words: RuleWords) {
    this.#words = words;
  }

  get byName(): ReadonlyMap<string, Chain> {
    return this.#chains;
  }

  /** `tcp-3`: chooses one of `count` endpoints and translates. */
  choice(map: EndpointMap, count: number): string {
    const { ip } = this.#words;
    const { protocol, nodePort } = map;
    const key = `${nodePort ? "" : `${ip} daddr . `}${protocol} dport . numgen random mod ${count}`;
    return this.#ensure(
      `${prefix(map)}${map.local ? "local-" : ""}${protocol}-${count}`,
      () => [`dnat ${ip} to ${key} map @${endpointMapName(map)}`],
    );
  }

  /** `masq-tcp-3`: traffic from outside under policy Cluster. */
  masqueraded(map: EndpointMap, count: number): string {
    const cluster = this.choice({ ...map, local: false }, count);
    return this.#ensure(
      `${prefix(map)}masq-${map.protocol}-${count}`,
      () => clusterPolicyRules(this.#words, cluster),
    );
  }

  /** `external-tcp-3-1`: traffic from outside under policy Local. */
  localOnly(map: EndpointMap, count: number, localCount: number): string {
    const cluster = this.choice({ ...map, local: false }, count);
    const local = localCount === 0 ? null : this.choice({ ...map, local: true }, localCount);
    return this.#ensure(
      `${prefix(map)}external-${map.protocol}-${count}-${localCount}`,
      () => localPolicyRules(this.#words, cluster, local),
    );
  }

  #ensure(name: string, rules: () => readonly string[]): string {
    if (!this.#chains.has(name)) this.#chains.set(name, { name, rules: rules() });
    return name;
  }
}

function prefix({ nodePort }: EndpointMap): string {
  return nodePort ? "nodeport-" : "";
}

/** Inputs that all Services of one plan share. */
export interface ServiceRulesContext {
  readonly node: NodeFacts;
  /** The node's own address; null if it has none of this family. */
  readonly nodeIp: Ip | null;
  readonly words: RuleWords;
  readonly sharedChains: SharedChains;
  readonly trafficCounters: boolean;
}

/** Objects of one Service, as they are planned. */
class ServiceDraft {
  readonly elements: Element[] = [];
  readonly sharedElements = new Map<string, Element>();
  readonly lists: EndpointList[] = [];
  readonly chains: Chain[] = [];
  readonly affinitySets: Container[] = [];
  readonly #destinations = new Set<string>();

  /** False if an earlier port of the Service owns the destination. */
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

/** Plans the objects of one ServicePort. */
class PortDraft {
  readonly #servicePort: ServicePort;
  readonly #endpoints: CategorizedEndpoints;
  readonly #context: ServiceRulesContext;
  readonly #draft: ServiceDraft;
  readonly #protocol: ProtocolWord;
  readonly #comment: string;
  /** Names of its own chains; null if it needs none. */
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
    this.#draft.share(SETS.clusterIps, clusterIP);
    this.#addClusterIp(clusterIP);
    const external = new Set([...externalIPs, ...loadBalancerVIPs]);
    for (const ip of external) this.#addExternalIp(ip, loadBalancerVIPs.includes(ip));
    if (nodePort !== 0) this.#addNodePort(nodePort);
    for (const { isLocal, ip, port } of this.#endpoints.allReachable) {
      if (isLocal) this.#draft.share(SETS.hairpins, `${ip} . ${ip} . ${PROTOCOL_WORDS[protocol]} . ${port}`);
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
      this.#addVerdict(SETS.noEndpointServices, claim);
      return;
    }
    const { internalPolicyLocal: local } = this.#servicePort;
    if (this.#sticky && this.#names !== null) {
      this.#add(SETS.serviceIps, claim, `goto ${local ? this.#names.local : this.#names.cluster}`);
      return;
    }
    const map = { protocol: this.#protocol, nodePort: false, local };
    const { cluster, local: localOnes } = this.#endpoints;
    const chain = this.#context.sharedChains.choice(map, (local ? localOnes : cluster).length);
    this.#add(SETS.serviceIps, claim, `goto ${chain}`);
    (local ? this.#localDestinations : this.#clusterDestinations).push({
      container: endpointMapName(map),
      prefix: `${ip} . ${this.#servicePort.port}`,
    });
  }

  #addExternalIp(ip: string, isLoadBalancer: boolean): void {
    const claim = this.#claimIp(ip);
    if (claim === null) return;
    if (isLoadBalancer && this.#names !== null && hasFirewall(this.#servicePort)) {
      this.#add(SETS.firewallIps, claim, `goto ${this.#names.firewall}`);
    }
    this.#addExternal(SETS.serviceIps, SETS.noEndpointServices, claim, `${ip} . ${this.#servicePort.port}`);
  }

  #addNodePort(nodePort: number): void {
    const claim = `${this.#protocol} . ${nodePort}`;
    if (!this.#draft.claim(claim)) return;
    this.#addCounters(claim, [SETS.nodePortTrafficIn, SETS.nodePortTrafficOut]);
    this.#addExternal(SETS.serviceNodePorts, SETS.noEndpointNodePorts, claim, String(nodePort));
  }

  /** Plans traffic from outside, to an address or a node port. */
  #addExternal(dispatchMap: string, noEndpointMap: string, claim: string, prefix: string): void {
    const { externalPolicyLocal } = this.#servicePort;
    const { hasAny, cluster, local } = this.#endpoints;
    if (!hasExternalEndpoints(this.#servicePort, this.#endpoints)) this.#addVerdict(noEndpointMap, claim);
    // Without local endpoints a policy Local still serves pods and the node itself.
    if (!hasAny) return;
    if (this.#sticky && this.#names !== null) {
      this.#add(dispatchMap, claim, `goto ${this.#names.external}`);
      return;
    }
    const { sharedChains } = this.#context;
    const map = { protocol: this.#protocol, nodePort: dispatchMap === SETS.serviceNodePorts, local: false };
    const chain = externalPolicyLocal
      ? sharedChains.localOnly(map, cluster.length, local.length)
      : sharedChains.masqueraded(map, cluster.length);
    this.#add(dispatchMap, claim, `goto ${chain}`);
    this.#clusterDestinations.push({ container: endpointMapName(map), prefix });
    if (externalPolicyLocal && local.length > 0) {
      this.#localDestinations.push({ container: endpointMapName({ ...map, local: true }), prefix });
    }
  }

  /** Null if an earlier port of the Service owns the address and port. */
  #claimIp(ip: string): string | null {
    const claim = `${ip} . ${this.#protocol} . ${this.#servicePort.port}`;
    if (!this.#draft.claim(claim)) return null;
    this.#addCounters(claim, [SETS.serviceTrafficIn, SETS.serviceTrafficOut]);
    return claim;
  }

  /** Adds counters, with or without endpoints, so that counts stay. */
  #addCounters(claim: string, sets: readonly string[]): void {
    if (!this.#context.trafficCounters) return;
    for (const container of sets) this.#draft.elements.push({ container, key: claim, value: "" });
  }

  /** Without any endpoint the packet is rejected; with endpoints elsewhere it is dropped: another node should answer. */
  #addVerdict(container: string, key: string): void {
    this.#add(container, key, this.#endpoints.hasAny ? "drop" : `goto ${CHAINS.reject}`);
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

/** True if source ranges limit the load-balancer IPs. Endpoints do not matter. */
function hasFirewall(servicePort: ServicePort): boolean {
  return servicePort.loadBalancerVIPs.length > 0 && servicePort.loadBalancerSourceRanges.length > 0;
}

/**
 * Chain that drops packets from elsewhere than the source ranges.
 *
 * @param nodeIp the node's own address; null if it has none of this family
 * @throws {RangeError} if a range is not a CIDR
 */
function planFirewall(
  servicePort: ServicePort,
  name: string,
  nodeIp: Ip | null,
  { ip }: RuleWords,
): Chain {
  // A packet from the node to the load-balancer IP comes back with that IP as its source.
  const own = letsNodeIn(servicePort, nodeIp) ? servicePort.loadBalancerVIPs : [];
  const sources = new Set([...servicePort.loadBalancerSourceRanges.map(printedNetwork), ...own]);
  // A rule for each, and no set: nft would join and sort the ranges, and then the text compares as another.
  return { name, rules: [...[...sources].map((source) => `${ip} saddr ${source} return`), "drop"] };
}

/** Affinity chains and sets of one ServicePort. */
interface AffinityRules {
  /** Chains, each of which jumps only to earlier ones. */
  readonly chains: readonly Chain[];
  readonly sets: readonly Container[];
}

/**
 * @param external true if destinations other than the cluster IP lead to the port
 */
function planAffinity(
  servicePort: ServicePort,
  endpoints: CategorizedEndpoints,
  names: ServiceChains,
  external: boolean,
  words: RuleWords,
): AffinityRules {
  const { ip, addressType } = words;
  const chains: Chain[] = [];
  const sets: Container[] = [];
  const namesOf = new Map<string, EndpointNames>();
  for (const endpoint of endpoints.allReachable) {
    const own = endpointNames(servicePort, endpoint);
    namesOf.set(endpoint.key, own);
    sets.push({
      name: own.affinitySet,
      kind: "set",
      spec: `type ${addressType} ; flags dynamic,timeout ;`,
      timeoutSeconds: servicePort.stickyMaxAgeSeconds,
      comment: "",
    });
    chains.push({
      name: own.chain,
      rules: [
        `update @${own.affinitySet} { ${ip} saddr }`,
        `meta l4proto ${PROTOCOL_WORDS[servicePort.protocol]} dnat to ` +
        joinHostPort(endpoint.ip, endpoint.port),
      ],
    });
  }
  const choice = (list: readonly Endpoint[]): string[] => {
    const own = list.map(({ key }) => namesOf.get(key)!);
    const verdicts = own.map(({ chain }, index) => `${index} : goto ${chain}`).join(", ");
    return [
      ...own.map(({ affinitySet, chain }) => `${ip} saddr @${affinitySet} goto ${chain}`),
      `numgen random mod ${own.length} vmap { ${verdicts} }`,
    ];
  };
  const { cluster, local } = endpoints;
  if (cluster.length > 0) chains.push({ name: names.cluster, rules: choice(cluster) });
  if (local.length > 0) chains.push({ name: names.local, rules: choice(local) });
  if (external) {
    chains.push({
      name: names.external,
      rules: servicePort.externalPolicyLocal
        ? localPolicyRules(words, names.cluster, local.length > 0 ? names.local : null)
        : clusterPolicyRules(words, names.cluster),
    });
  }
  return { chains, sets };
}

/** The first endpoints of very many: a slot more than `numgen` counts would never be chosen. */
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
