/**
 * The rules of one Service: its entries in the shared chains and its own chains (the numbers in comments are those
 * of `../README.md`, "The rules of a Service, by number").
 *
 * @module
 */
import { categorizeEndpoints, hasExternalEndpoints, hasInternalEndpoints } from "../../../model/endpoint.ts";
import type { Ip } from "../../../model/ip.ts";
import type { LocalDetector } from "../../../model/node.ts";
import { isExternallyAccessible } from "../../../model/service_port.ts";
import type { Endpoint, NodeFacts, ServicePort, ServicePortKey } from "../../../model/state.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { letsNodeIn, podMatch } from "../../planning.ts";
import {
  endpointChain,
  EXTERNAL_SERVICES_CHAIN,
  MARK_MASQ_CHAIN,
  NODE_PORTS_CHAIN,
  PROXY_FIREWALL_CHAIN,
  type ServiceChains,
  serviceChains,
  SERVICES_CHAIN,
} from "./chains.ts";
import { COUNTERS, type DispatchRule, type ServiceRules } from "./ruleset.ts";

/** Inputs that all Services of one plan share. */
export interface ServiceRulesContext {
  readonly node: NodeFacts;
  readonly masqueradeAll: boolean;
  readonly detector: LocalDetector;
  /** The node's own address; null if it has none of this family. */
  readonly nodeIp: Ip | null;
  /** Large-cluster mode: no comments on endpoint rules. */
  readonly large: boolean;
  /** True if connections to node ports on 127.0.0.1 are counted, by a rule of their own for each node port. */
  readonly countsLocalhostNodePorts: boolean;
}

/** 1/count with ten decimals, as kube-proxy prints it. */
export function formatProbability(count: number): string {
  // The only exact tie in binary: C and Go round it to even, toFixed rounds it up.
  return count === 2048 ? "0.0004882812" : (1 / count).toFixed(10);
}

/** Facts that decide the rules of one ServicePort. */
interface PortFacts {
  readonly servicePort: ServicePort;
  readonly chains: ServiceChains;
  readonly protocolMatch: string;
  readonly cluster: readonly Endpoint[];
  readonly local: readonly Endpoint[];
  readonly hasEndpoints: boolean;
  readonly hasInternal: boolean;
  readonly hasExternal: boolean;
  readonly internalChain: string;
  readonly writesExternal: boolean;
  readonly writesFirewall: boolean;
}

function portFacts(
  servicePort: ServicePort,
  endpoints: readonly Endpoint[],
  context: ServiceRulesContext,
): PortFacts {
  const chains = serviceChains(servicePort);
  const protocol = servicePort.protocol.toLowerCase();
  const categorized = categorizeEndpoints(endpoints, servicePort, context.node);
  const { hasAny } = categorized;
  return {
    servicePort,
    chains,
    protocolMatch: `-m ${protocol} -p ${protocol}`,
    // Both lists are empty where the traffic policies do not need them.
    cluster: categorized.cluster,
    local: categorized.local,
    hasEndpoints: hasAny,
    hasInternal: hasInternalEndpoints(servicePort, categorized),
    hasExternal: hasExternalEndpoints(servicePort, categorized),
    internalChain: servicePort.internalPolicyLocal ? chains.local : chains.cluster,
    writesExternal: hasAny && isExternallyAccessible(servicePort),
    writesFirewall: hasAny && servicePort.loadBalancerVIPs.length > 0 &&
      servicePort.loadBalancerSourceRanges.length > 0,
  };
}

/** Rules 1 to 10, in shared chains. */
function addDispatch(facts: PortFacts, context: ServiceRulesContext, dispatch: DispatchRule[]): void {
  const { servicePort, chains, protocolMatch } = facts;
  const add = (table: Table, chain: string, rule: string): void => {
    // These are kept for long: reading a character makes V8 replace the parts of the text by the whole.
    rule.charCodeAt(0);
    dispatch.push({ table, chain, rule });
  };
  const commented = (what: string): string => `-m comment --comment "${servicePort.text} ${what}"`;
  const to = (ip: string): string => `${protocolMatch} -d ${ip} --dport ${servicePort.port}`;
  // Without any endpoint the client gets an answer at once; endpoints elsewhere only mean that another node should answer.
  const verdictComment = commented(facts.hasEndpoints ? "has no local endpoints" : "has no endpoints");
  const verdict = facts.hasEndpoints ? "DROP" : "REJECT";

  if (facts.hasInternal) { // 1
    const target = facts.internalChain;
    add("nat", SERVICES_CHAIN, `${commented("cluster IP")} ${to(servicePort.clusterIP)} -j ${target}`);
  } else { // 2
    add("filter", SERVICES_CHAIN, `${verdictComment} ${to(servicePort.clusterIP)} -j ${verdict}`);
  }
  for (const ip of servicePort.externalIPs) {
    if (facts.hasEndpoints) { // 3
      add("nat", SERVICES_CHAIN, `${commented("external IP")} ${to(ip)} -j ${chains.external}`);
    }
    if (!facts.hasExternal) { // 4
      add("filter", EXTERNAL_SERVICES_CHAIN, `${verdictComment} ${to(ip)} -j ${verdict}`);
    }
  }
  for (const ip of servicePort.loadBalancerVIPs) {
    if (facts.hasEndpoints) { // 5
      const target = facts.writesFirewall ? chains.firewall : chains.external;
      add("nat", SERVICES_CHAIN, `${commented("loadbalancer IP")} ${to(ip)} -j ${target}`);
    }
    if (facts.writesFirewall) { // 6
      const comment = commented(`traffic not accepted by ${chains.firewall}`);
      add("filter", PROXY_FIREWALL_CHAIN, `${comment} ${to(ip)} -j DROP`);
    }
  }
  if (!facts.hasExternal) { // 7
    for (const ip of servicePort.loadBalancerVIPs) {
      add("filter", EXTERNAL_SERVICES_CHAIN, `${verdictComment} ${to(ip)} -j ${verdict}`);
    }
  }
  if (servicePort.nodePort !== 0) {
    const port = `${protocolMatch} --dport ${servicePort.nodePort}`;
    if (facts.hasEndpoints) { // 8
      const start = `-m comment --comment ${servicePort.text} ${protocolMatch}`;
      const end = `-j ${chains.external}`;
      const toPort = `--dport ${servicePort.nodePort}`;
      if (context.countsLocalhostNodePorts) {
        const count = `-m nfacct --nfacct-name ${COUNTERS.localhostNodePorts}`;
        add("nat", NODE_PORTS_CHAIN, `${start} -d 127.0.0.0/8 ${toPort} ${count} ${end}`);
      }
      add("nat", NODE_PORTS_CHAIN, `${start} ${toPort} ${end}`);
    }
    if (!facts.hasExternal) { // 9
      const local = "-m addrtype --dst-type LOCAL";
      add("filter", EXTERNAL_SERVICES_CHAIN, `${verdictComment} ${local} ${port} -j ${verdict}`);
    }
  }
  if (servicePort.healthCheckNodePort !== 0) { // 10: the health server speaks TCP whatever the Service speaks
    const port = `-m tcp -p tcp --dport ${servicePort.healthCheckNodePort}`;
    add("filter", NODE_PORTS_CHAIN, `${commented("health check node port")} ${port} -j ACCEPT`);
  }
}

/** Rule 12: clients from outside of the pod network that use the cluster IP get the node's address. */
function addInternalMasquerade(facts: PortFacts, context: ServiceRulesContext, rules: string[]): void {
  const pods = podMatch(context.detector);
  if (!facts.hasInternal || pods === null && !context.masqueradeAll) return;
  const { text, clusterIP, port } = facts.servicePort;
  rules.push(
    `-A ${facts.internalChain} -m comment --comment "${text} cluster IP" ${facts.protocolMatch}` +
      ` -d ${clusterIP} --dport ${port}${context.masqueradeAll ? "" : ` ! ${pods}`} -j ${MARK_MASQ_CHAIN}`,
  );
}

/** Rules 13 to 17: traffic to external IPs, load-balancer IPs and node ports. */
function addExternalChain(facts: PortFacts, context: ServiceRulesContext, rules: string[]): void {
  const { text, externalPolicyLocal } = facts.servicePort;
  const { cluster, local, external } = facts.chains;
  const start = (what: string): string =>
    `-A ${external} -m comment --comment "${what} for ${text} external destinations"`;
  if (!externalPolicyLocal) { // 13
    rules.push(`${start("masquerade traffic")} -j ${MARK_MASQ_CHAIN}`);
  } else {
    const pods = podMatch(context.detector);
    // Pods and the node itself get any endpoint: the policy is about traffic from outside.
    if (pods !== null) rules.push(`${start("pod traffic")} ${pods} -j ${cluster}`); // 14
    const own = "-m addrtype --src-type LOCAL";
    rules.push(`${start("masquerade LOCAL traffic")} ${own} -j ${MARK_MASQ_CHAIN}`); // 15
    rules.push(`${start("route LOCAL traffic")} ${own} -j ${cluster}`); // 16
  }
  if (facts.hasExternal) rules.push(`-A ${external} -j ${externalPolicyLocal ? local : cluster}`); // 17
}

/** Rules 18 to 20: sources that may use the load-balancer IPs; the rest is left to filter's KUBE-PROXY-FIREWALL. */
function addFirewallChain(facts: PortFacts, context: ServiceRulesContext, rules: string[]): void {
  const { text, loadBalancerSourceRanges, loadBalancerVIPs } = facts.servicePort;
  const { firewall, external } = facts.chains;
  const accept = (source: string): string =>
    `-A ${firewall} -m comment --comment "${text} loadbalancer IP" -s ${source} -j ${external}`;
  for (const range of loadBalancerSourceRanges) rules.push(accept(range)); // 18
  // A packet from the node to the load-balancer IP comes back with that IP as its source.
  if (letsNodeIn(facts.servicePort, context.nodeIp)) {
    for (const ip of loadBalancerVIPs) rules.push(accept(ip)); // 19
  }
  rules.push(
    `-A ${firewall} -m comment --comment "other traffic to ${text} will be dropped by KUBE-PROXY-FIREWALL"`, // 20
  );
}

/** Rules 21 and 22: affinity, then the choice among `endpoints`. */
function addPolicyChain(
  chain: string,
  endpoints: readonly Endpoint[],
  facts: PortFacts,
  context: ServiceRulesContext,
  endpointChains: ReadonlyMap<string, string>,
  rules: string[],
): void {
  const { text, stickyMaxAgeSeconds } = facts.servicePort;
  const starts = endpoints.map(({ key }) =>
    context.large ? `-A ${chain}` : `-A ${chain} -m comment --comment "${text} -> ${key}"`
  );
  const targets = endpoints.map(({ key }) => endpointChains.get(key)!);
  if (stickyMaxAgeSeconds > 0) {
    targets.forEach((target, index) => {
      const recent = `-m recent --name ${target} --rcheck --seconds ${stickyMaxAgeSeconds} --reap`;
      rules.push(`${starts[index]!} ${recent} -j ${target}`);
    });
  }
  targets.forEach((target, index) => {
    const left = targets.length - index;
    const choice = left > 1 ? ` -m statistic --mode random --probability ${formatProbability(left)}` : "";
    rules.push(`${starts[index]!}${choice} -j ${target}`);
  });
}

/** Rule 23: hairpin masquerading and DNAT. */
function addEndpointChain(
  chain: string,
  endpoint: Endpoint,
  facts: PortFacts,
  context: ServiceRulesContext,
  rules: string[],
): void {
  const { text, stickyMaxAgeSeconds } = facts.servicePort;
  const start = context.large ? `-A ${chain}` : `-A ${chain} -m comment --comment ${text}`;
  const recent = stickyMaxAgeSeconds > 0 ? ` -m recent --name ${chain} --set` : "";
  rules.push(`${start} -s ${endpoint.ip} -j ${MARK_MASQ_CHAIN}`);
  rules.push(`${start}${recent} ${facts.protocolMatch} -j DNAT --to-destination ${endpoint.key}`);
}

/** Rules 12 to 23 with the names of the chains they are in. */
function addOwnChains(
  facts: PortFacts,
  context: ServiceRulesContext,
  chains: string[],
  rules: string[],
): void {
  const endpointChains = new Map<string, string>();
  const reachable: Endpoint[] = [];
  // Upstream's order: those of the cluster policy, then local ones that are not among them.
  for (const endpoint of [...facts.cluster, ...facts.local]) {
    if (endpointChains.has(endpoint.key)) continue;
    reachable.push(endpoint);
    endpointChains.set(endpoint.key, endpointChain(facts.servicePort, endpoint));
  }
  if (facts.writesExternal) chains.push(facts.chains.external);
  if (facts.writesFirewall) chains.push(facts.chains.firewall);
  if (facts.cluster.length > 0) chains.push(facts.chains.cluster);
  if (facts.local.length > 0) chains.push(facts.chains.local);
  for (const chain of endpointChains.values()) chains.push(chain);

  addInternalMasquerade(facts, context, rules);
  if (facts.writesExternal) addExternalChain(facts, context, rules);
  if (facts.writesFirewall) addFirewallChain(facts, context, rules);
  addPolicyChain(facts.chains.cluster, facts.cluster, facts, context, endpointChains, rules);
  addPolicyChain(facts.chains.local, facts.local, facts, context, endpointChains, rules);
  for (const endpoint of reachable) {
    addEndpointChain(endpointChains.get(endpoint.key)!, endpoint, facts, context, rules);
  }
}

/** All rules of one Service, given its ports and their endpoints. */
export function planService(
  servicePorts: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  context: ServiceRulesContext,
): ServiceRules {
  const dispatch: DispatchRule[] = [];
  const chains: string[] = [];
  const rules: string[] = [];
  for (const servicePort of servicePorts) {
    const facts = portFacts(servicePort, endpoints?.get(servicePort.key) ?? [], context);
    addDispatch(facts, context, dispatch);
    addOwnChains(facts, context, chains, rules);
  }
  return packed(dispatch, chains, rules);
}

/**
 * Keeps the rules of a Service as one text, taken apart again when they are read: texts put together by `+` hold all
 * their parts, which at 100,000 endpoints would be three times their length.
 */
function packed(
  dispatch: readonly DispatchRule[],
  chains: readonly string[],
  rules: readonly string[],
): ServiceRules {
  const ruleText = rules.join("\n");
  const names = chains.join(" ");
  return {
    dispatch,
    get chains() {
      return names === "" ? [] : names.split(" ");
    },
    get rules() {
      return ruleText === "" ? [] : ruleText.split("\n");
    },
    ruleText,
    ruleCount: rules.length,
  };
}
