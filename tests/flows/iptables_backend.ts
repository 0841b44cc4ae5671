/**
 * iptables mode for the flow cases: objects → state → plan → restore text → parsed rules → simulated packets.
 *
 * @module
 */
import { planIptables, renderPlan } from "../../lib/backend/iptables/plan/plan.ts";
import type { IptablesOptions } from "../../lib/backend/iptables/plan/ruleset.ts";
import { emptySnapshot, kernelTables } from "../../lib/sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { IptablesRuleset, SavedChain } from "../../lib/netfilter/iptables_save.ts";
import type { FlowBackend, FlowOptions, FlowTable } from "./flow_case.ts";
import type { ApiJson } from "./objects.ts";
import { plannerOptions, stateOf } from "./planner_input.ts";
import { simulatedTable } from "./simulated_table.ts";

/** One family's rules as text: what a full sync leaves in an empty kernel. */
export interface RulesText {
  /** Restore text of our own chains. */
  readonly restore: string;
  readonly jumps: Parameters<typeof kernelTables>[1];
}

function iptablesOptions(family: IpFamily, options: FlowOptions): IptablesOptions {
  return {
    ...plannerOptions(family, options, options.nodePortAddresses),
    localhostNodePorts: options.localhostNodePorts,
    dropInvalid: !options.tcpBeLiberal,
    nfacct: true,
  };
}

/** Plans one family of a case. */
export function rulesText(family: IpFamily, objects: readonly ApiJson[], options: FlowOptions): RulesText {
  const plan = planIptables(stateOf(family, objects, options), "all", iptablesOptions(family, options));
  return { restore: renderPlan(plan), jumps: plan.base.jumps };
}

/** The kernel's tables, with the chain that kubelet owns: it is made sure of by other means than the restore text. */
function tablesWithKubelet(text: RulesText, options: FlowOptions): IptablesRuleset {
  const tables = new Map(kernelTables(text.restore, text.jumps, options.policies));
  const kubelet: SavedChain = { policy: "-", rules: [] };
  return tables.set("filter", new Map([["KUBE-FIREWALL", kubelet], ...tables.get("filter") ?? []]));
}

/** Rules ready for packets of both families. */
export function tableOf(text: Readonly<Record<IpFamily, RulesText>>, options: FlowOptions): FlowTable {
  const simulator = (family: IpFamily): RulesetSimulator => {
    const tables = tablesWithKubelet(text[family], options);
    return new RulesetSimulator({ ...emptySnapshot(family), iptables: [{ variant: "", tables }] });
  };
  return simulatedTable({ IPv4: simulator("IPv4"), IPv6: simulator("IPv6") }, options);
}

export const IPTABLES_BACKEND: FlowBackend = {
  name: "iptables",
  gaps: {},
  load(objects, options) {
    return tableOf({
      IPv4: rulesText("IPv4", objects, options),
      IPv6: rulesText("IPv6", objects, options),
    }, options);
  },
};
