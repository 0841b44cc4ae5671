/**
 * The planner of iptables mode: from the state of one family to the rules of the changed Services, and from
 * the configuration and the Node to the options of those rules.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { parseIp } from "../../../model/ip.ts";
import type { LocalDetection } from "../../../model/node.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { atOnce, familySettings, planServicesInSteps, type Steps } from "../../planning.ts";
import { planBaseRules, usesLocalhostNodePorts } from "./base_rules.ts";
import type { IptablesOptions, IptablesPlan } from "./ruleset.ts";
import { planService, type ServiceRulesContext } from "./service_rules.ts";
import { chainLine, type Table, tableBlock } from "../../../netfilter/iptables_jumps.ts";

/** With more endpoints than this in the family, endpoint rules carry no comments. */
const LARGE_CLUSTER_ENDPOINTS = 1000;

/** True if comments are left out of the endpoint rules. */
function isLargeCluster(state: ProxyState): boolean {
  return state.endpointCount > LARGE_CLUSTER_ENDPOINTS;
}

/**
 * The rules of the changed Services (of all for `"all"`) and the base rules. They depend on the state
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

/** All of the options that neither the node's interfaces and sysctls nor its nfacct counters decide. */
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

/**
 * The lines of one table of a plan: chains, then base rules, then those of each Service, then the base rules
 * that must be last. In nat a Service's dispatch rules come before those of its own chains.
 */
export function planLines(plan: IptablesPlan, table: Table): string[] {
  const lines = plan.base.chains[table].map(chainLine);
  const services = [...plan.services.values()].filter((service) => service !== null);
  if (table === "nat") {
    for (const { chains } of services) for (const chain of chains) lines.push(chainLine(chain));
  }
  for (const rule of plan.base.head[table]) lines.push(rule);
  for (const { dispatch, rules } of services) {
    for (const rule of dispatch) if (rule.table === table) lines.push(`-A ${rule.chain} ${rule.rule}`);
    if (table === "nat") { for (const rule of rules) lines.push(rule); }
  }
  for (const rule of plan.base.tail[table]) lines.push(rule);
  return lines;
}

/** The whole plan as text, filter first. It does not contain the jumps from built-in chains. */
export function renderPlan(plan: IptablesPlan): string {
  return (["filter", "nat"] as const).map((table) => tableBlock(table, planLines(plan, table))).join("");
}
