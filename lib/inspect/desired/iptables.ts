/**
 * What one family should hold in iptables mode.
 *
 * @module
 */
import { planIptables } from "../../backend/iptables/plan/plan.ts";
import { planLines, renderPlan } from "../../backend/iptables/plan/render.ts";
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { configuredIptables } from "../../backend/iptables/plan/settings.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import { type Table, tableBlock } from "../../netfilter/iptables_jumps.ts";
import type { SavedChain } from "../../netfilter/iptables_save.ts";
import {
  builtinRules,
  emptySnapshot,
  kernelTables,
  type RulesetSnapshot,
} from "../../sim/ruleset_snapshot.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "./desired.ts";

const TABLES: readonly Table[] = ["filter", "nat"];

/** The plan of all Services of one family. */
export function iptablesPlan(input: DesiredInput, family: IpFamily): IptablesPlan {
  const { config, node, machine } = input;
  const options = warned(configuredIptables(config, family, node), input, family);
  return planIptables(stateOf(input, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, hostAddresses(input, options.nodeIp)),
    randomFully: true,
    // On the node the sysctl decides, which the same setting makes kproxy write.
    dropInvalid: !(machine.tcpBeLiberal ?? config.conntrack.tcpBeLiberal),
    nfacct: machine.nfacct,
  });
}

/** Text for `iptables-restore --noflush`: own chains and rules of each table, then the jumps from the kernel's chains. */
export function iptablesText(plan: IptablesPlan): string {
  return TABLES.map((table) => {
    // A chain that is only made sure of, and not filled, belongs to the kubelet: to name it would empty it.
    const jumps = plan.base.jumps.filter((jump) =>
      jump.table === table && plan.base.chains[table].includes(jump.target)
    );
    return tableBlock(table, [
      ...planLines(plan, table),
      ...jumps.map(({ chain, args }) => `-I ${chain} ${args}`),
    ]);
  }).join("");
}

/** What an empty kernel holds after a sync of the plan. */
export function iptablesRules(plan: IptablesPlan, family: IpFamily): RulesetSnapshot {
  const tables = new Map(kernelTables(renderPlan(plan), builtinRules(plan.base.jumps)));
  // The kubelet's own chains are made sure of by other means than the restore text.
  for (const { table, target } of plan.base.jumps) {
    const chains = tables.get(table);
    if (chains !== undefined && !chains.has(target)) {
      tables.set(table, new Map([...chains, [target, EMPTY_CHAIN]]));
    }
  }
  return { ...emptySnapshot(family), iptables: [{ variant: "", tables }] };
}

const EMPTY_CHAIN: SavedChain = { policy: "-", packets: 0, bytes: 0, rules: [] };
