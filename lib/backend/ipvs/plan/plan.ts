/**
 * The planner of IPVS mode: from the state of one family to what the changed Services want.
 *
 * @module
 */
import { parseIp } from "../../../model/ip.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { atOnce, planServicesInSteps, type Steps } from "../../plan_services.ts";
import { planBaseRules } from "./base_rules.ts";
import type { IpvsOptions, IpvsPlan } from "./ruleset.ts";
import { objectsOfService, type ServiceContext } from "./service_objects.ts";

/**
 * What the changed Services want (all for `"all"`) and the rules that are always there. It depends on the state
 * only, not on the order in which it came about.
 *
 * @throws {RangeError} if an option does not fit its family
 */
export function planIpvs(state: ProxyState, changed: Changed, options: IpvsOptions): IpvsPlan {
  return atOnce(planIpvsInSteps(state, changed, options));
}

/** As {@linkcode planIpvs}, with a step after each Service. */
export function* planIpvsInSteps(state: ProxyState, changed: Changed, options: IpvsOptions): Steps<IpvsPlan> {
  const { family } = options;
  for (const text of [...options.nodePortIps, ...options.hostIps]) {
    if (parseIp(text)?.family !== family) {
      throw new RangeError(`Node-port and host addresses must be ${family} addresses: got "${text}"`);
    }
  }
  const nodeIp = parseIp(options.nodeIp);
  const problems = new Map<NamespacedName, readonly string[]>();
  let reported = new Set<string>();
  const context: ServiceContext = {
    options,
    node: state.node,
    nodeIp: nodeIp?.family === family ? nodeIp : null,
    hostIps: new Set(options.hostIps),
    report: (problem) => reported.add(problem),
  };
  const services = yield* planServicesInSteps(
    state,
    changed,
    family,
    (ports, endpoints, name) => {
      reported = new Set();
      const objects = objectsOfService(ports, endpoints, context);
      if (reported.size > 0) problems.set(name, [...reported].sort());
      return objects;
    },
  );
  return {
    all: changed === "all",
    base: planBaseRules(options),
    services,
    problems,
  };
}
