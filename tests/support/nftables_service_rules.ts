/**
 * Planned rules of one Service in nftables mode, in short forms.
 *
 * @module
 */
import { exampleNftablesOptions } from "./golden_nftables.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { parseIp } from "../../lib/model/ip.ts";
import type { Endpoint, ServicePort } from "../../lib/model/state.ts";
import { NODE_A, testEndpoint } from "./model_objects.ts";
import type { NftablesOptions, ServiceRules } from "../../lib/backend/nftables/plan/ruleset.ts";
import { planService, ruleWords, SharedChains } from "../../lib/backend/nftables/plan/service_rules.ts";

export const LOCAL = testEndpoint("10.244.0.11", { isLocal: true });
export const REMOTE = testEndpoint("10.244.1.12");
export const OTHER = testEndpoint("10.244.2.13");

interface Planned {
  readonly rules: ServiceRules;
  readonly shared: SharedChains;
}

/** The plan for these ports, which share their endpoints. */
export function plan(
  ports: readonly ServicePort[],
  endpoints: readonly Endpoint[],
  changes: Partial<NftablesOptions> = {},
  family: IpFamily = "IPv4",
): Planned {
  const options = exampleNftablesOptions(family, changes);
  const words = ruleWords(options);
  const shared = new SharedChains(words);
  const byPort = new Map(ports.map((port) => [port.key, endpoints]));
  const context = {
    node: NODE_A,
    nodeIp: parseIp(options.nodeIp),
    words,
    sharedChains: shared,
    trafficCounters: options.trafficCounters ?? false,
  };
  return { rules: planService(ports, byPort, context), shared };
}

/** Elements as `container key : value`, without comments. */
export function elements({ rules }: Planned): string[] {
  return rules.elements.map(({ container, key, value }) => `${container} ${key} : ${value}`);
}

/** Endpoint lists as `container prefix : endpoints`, without slots. */
export function lists({ rules }: Planned): string[] {
  return rules.lists.flatMap(({ destinations, endpoints }) =>
    destinations.map(({ container, prefix }) => `${container} ${prefix} : ${endpoints.join(", ")}`)
  );
}

/** Shared elements as `container key`: other Services may need them, too. */
export function sharedElements({ rules }: Planned): string[] {
  return rules.sharedElements.map(({ container, key }) => `${container} ${key}`);
}

/** Rules of a shared chain; undefined if it was not requested. */
export function chain({ shared }: Planned, name: string): readonly string[] | undefined {
  return shared.byName.get(name)?.rules;
}

/** Service fields with every kind of external address. */
export const EXTERNAL = {
  nodePort: 30080,
  externalIPs: ["198.51.100.7"],
  loadBalancerVIPs: ["203.0.113.40"],
};
