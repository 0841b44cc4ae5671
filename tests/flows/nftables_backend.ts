/**
 * nftables mode for the flow cases: objects → state → plan → text for nft → tables → simulated packets.
 *
 * @module
 */
import { planNftables } from "../../lib/backend/nftables/plan/plan.ts";
import { renderPlan } from "../../lib/backend/nftables/store/full_sync.ts";
import type { NftablesOptions, NftablesPlan } from "../../lib/backend/nftables/plan/ruleset.ts";
import { emptySnapshot } from "../../lib/sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { tablesOfScript } from "../../lib/netfilter/nft_script.ts";
import type { FlowBackend, FlowOptions, FlowTable } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";
import { plannerOptions, stateOf } from "./planner_input.ts";
import { simulatedTable } from "./simulated_table.ts";

function nftablesOptions(family: IpFamily, options: FlowOptions): NftablesOptions {
  return {
    ...plannerOptions(family, options, options.nodePortAddresses ?? ["primary"]),
    serviceCidrs: options.serviceCidrs.filter((cidr) => cidr.includes(":") === (family === "IPv6")),
    objectComments: true,
  };
}

/** Plans one family of a case. */
function nftPlan(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): NftablesPlan {
  return planNftables(stateOf(family, objects, options), "all", nftablesOptions(family, options));
}

/** One family's rules as text: what a full sync leaves in an empty kernel. */
export function nftText(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): string {
  return renderPlan(nftPlan(family, objects, options));
}

/** The node's own firewall, which has its rules in a table of its own; it was there first. */
function hostFirewall(family: IpFamily, { policies }: FlowOptions): string {
  const table = `${family === "IPv4" ? "ip" : "ip6"} host`;
  return [
    `add table ${table}`,
    ...(["INPUT", "FORWARD"] as const).map((chain) =>
      `add chain ${table} ${chain} { type filter hook ${chain.toLowerCase()} priority filter; ` +
      `policy ${policies[chain].toLowerCase()}; }`
    ),
  ].join("\n");
}

/** Rules ready for packets of both families. */
export function nftTableOf(text: Readonly<Record<IpFamily, string>>, options: FlowOptions): FlowTable {
  const simulator = (family: IpFamily): RulesetSimulator =>
    new RulesetSimulator({
      ...emptySnapshot(family),
      nftables: tablesOfScript(`${hostFirewall(family, options)}
${text[family]}`),
    });
  return simulatedTable({ IPv4: simulator("IPv4"), IPv6: simulator("IPv6") }, options);
}

export const NFTABLES_BACKEND: FlowBackend = {
  name: "nftables",
  gaps: {},
  load(objects, options) {
    return nftTableOf({
      IPv4: nftText("IPv4", objects, options),
      IPv6: nftText("IPv6", objects, options),
    }, options);
  },
};
