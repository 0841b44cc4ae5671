/**
 * The planner of iptables mode: from the state of one family to the rules that the changed Services want, and from the configuration and
 * the Node to what decides them.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { parseIp } from "../../../model/ip.ts";
import type { LocalDetection } from "../../../model/node.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { familySettings } from "../../family_settings.ts";
import { atOnce, planServicesInSteps, type Steps } from "../../plan_services.ts";
import { planBaseRules, usesLocalhostNodePorts } from "./base_rules.ts";
import type { IptablesOptions, IptablesPlan } from "./ruleset.ts";
import { planService, type ServiceRulesContext } from "./service_rules.ts";

/** With more endpoints than this in the family, the rules of which there are many carry no comments. */
const LARGE_CLUSTER_ENDPOINTS = 1000;

/** True if comments are left out of the endpoint rules. */
function isLargeCluster(state: ProxyState): boolean {
  return state.endpointCount > LARGE_CLUSTER_ENDPOINTS;
}

/**
 * The rules of the changed Services (of all for `"all"`) and those that are always there. It depends on the state
 * only, not on the order in which it came about.
 *
 * @throws {RangeError} if an option does not fit its family
 */
export function planIptables(state: ProxyState, changed: Changed, options: IptablesOptions): IptablesPlan {
  return atOnce(planIptablesInSteps(state, changed, options));
}

/** As {@linkcode planIptables}, with a step after each Service. */
export function* planIptablesInSteps(
  state: ProxyState,
  changed: Changed,
  options: IptablesOptions,
): Steps<IptablesPlan> {
  const nodeIp = parseIp(options.nodeIp);
  const context: ServiceRulesContext = {
    node: state.node,
    masqueradeAll: options.masqueradeAll,
    detector: options.detector,
    nodeIp: nodeIp?.family === options.family ? nodeIp : null,
    large: isLargeCluster(state),
    countsLocalhostNodePorts: options.nfacct && usesLocalhostNodePorts(options),
  };
  const services = yield* planServicesInSteps(
    state,
    changed,
    options.family,
    (ports, endpoints) => planService(ports, endpoints, context),
  );
  return { all: changed === "all", base: planBaseRules(options), services };
}

/** All of the options that neither the tool's version nor the node's interfaces and sysctls decide. */
export type ConfiguredIptables = Omit<
  IptablesOptions,
  "nodePortIps" | "dropInvalid" | "nfacct"
>;

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 */
export function configuredIptables(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
): { readonly options: ConfiguredIptables; readonly problem: LocalDetection["problem"] } {
  const { settings, problem } = familySettings(config, "iptables", family, node);
  return { options: { ...settings, localhostNodePorts: config.iptables.localhostNodePorts }, problem };
}
