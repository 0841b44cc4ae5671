/**
 * The planner of nftables mode: from the state of one family to the rules of the changed Services, and from
 * the configuration and the Node to the options that decide the rules.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { parseCidr, parseIp } from "../../../model/ip.ts";
import type { LocalDetection } from "../../../model/node.ts";
import { compareBytes } from "../../../model/names.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../../../model/objects.ts";
import type { Changed, ProxyState, ServicePort } from "../../../model/state.ts";
import { atOnce, familySettings, planServicesInSteps, type Steps } from "../../planning.ts";
import { planBaseRules } from "./base_rules.ts";
import { printedNetwork } from "./chains.ts";
import type { NftablesOptions, NftablesPlan } from "./ruleset.ts";
import { planService, ruleWords, type ServiceRulesContext, SharedChains } from "./service_rules.ts";

/** The API server, as every cluster has it. */
const KUBERNETES: NamespacedName = "default/kubernetes";
const DNS_PORT = 53;

/**
 * Rules of the changed Services (all for `"all"`), and base rules. They depend on the state only, not on the
 * order in which it came about, and the rules of a Service do not depend on the others.
 *
 * @throws {RangeError} if an option does not fit its family
 */
export function planNftables(
  state: ProxyState,
  changed: Changed,
  options: NftablesOptions,
): NftablesPlan {
  return atOnce(planNftablesInSteps(state, changed, options));
}

/** As {@linkcode planNftables}, with a step after each Service. */
export function* planNftablesInSteps(
  state: ProxyState,
  changed: Changed,
  options: NftablesOptions,
): Steps<NftablesPlan> {
  const nodeIp = parseIp(options.nodeIp);
  const words = ruleWords(options);
  const sharedChains = new SharedChains(words);
  const context: ServiceRulesContext = {
    node: state.node,
    nodeIp: nodeIp?.family === options.family ? nodeIp : null,
    words,
    sharedChains,
    trafficCounters: options.trafficCounters === true,
  };
  const services = yield* planServicesInSteps(
    state,
    changed,
    options.family,
    (ports, endpoints) => planService(ports, endpoints, context),
    (names) => emissionOrder(state, names),
  );
  return {
    family: options.family,
    all: changed === "all",
    base: planBaseRules(options),
    sharedChains: sharedChains.byName,
    services,
  };
}

/** Services that the cluster itself needs come first: the API server, then DNS. */
function emissionOrder(state: ProxyState, unsorted: readonly NamespacedName[]): readonly NamespacedName[] {
  const names = unsorted.toSorted(compareBytes);
  const needed = names.filter((name) => isNeededFirst(name, state.services.get(name) ?? []));
  const first = new Set(
    needed.sort((left, right) => Number(right === KUBERNETES) - Number(left === KUBERNETES)),
  );
  return [...first, ...names.filter((name) => !first.has(name))];
}

function isNeededFirst(name: NamespacedName, ports: readonly ServicePort[]): boolean {
  return name === KUBERNETES || ports.some(({ port }) => port === DNS_PORT);
}

/** All of the options that neither the node's interfaces, nor its kernel, nor the cluster's ServiceCIDRs decide. */
export type ConfiguredNftables = Omit<NftablesOptions, "nodePortIps" | "serviceCidrs" | "objectComments">;

/** Default, also when the mode was chosen from `auto`, and so not yet known when defaults were filled in. */
const DEFAULT_NODE_PORT_ADDRESSES: readonly string[] = ["primary"];

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 */
export function configuredNftables(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
): { readonly options: ConfiguredNftables; readonly problem: LocalDetection["problem"] } {
  const addresses = config.nodePortAddresses ?? [];
  const { settings, problem } = familySettings(
    { ...config, nodePortAddresses: addresses.length > 0 ? addresses : [...DEFAULT_NODE_PORT_ADDRESSES] },
    "nftables",
    family,
    node,
  );
  return { options: { ...settings, trafficCounters: config.kproxy.trafficCounters }, problem };
}

/** Networks of one family, as nft prints them. */
export function networksOfFamily(networks: readonly string[], family: IpFamily): readonly string[] {
  return networks.filter((text) => parseCidr(text)?.family === family).map(printedNetwork);
}
