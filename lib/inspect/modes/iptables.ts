/**
 * Mode iptables: desired rules of a family, and differences of the live ones.
 *
 * @module
 */
import { CANARY_CHAIN } from "../../backend/iptables/plan/chains.ts";
import { configuredIptables, planIptables, planLines, renderPlan } from "../../backend/iptables/plan/plan.ts";
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import { tableBlock } from "../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset, SavedChain } from "../../netfilter/iptables_save.ts";
import { emptySnapshot, kernelTables, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { chainPlace, compareIptables, TABLES } from "../check/chains.ts";
import type { Comparison, DifferenceList } from "../check/check.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "../desired/desired.ts";

/** The plan of all Services of one family. */
function iptablesPlan(input: DesiredInput, family: IpFamily): IptablesPlan {
  const { config, node, machine } = input;
  const options = warned(configuredIptables(config, family, node), input, family);
  return planIptables(stateOf(input, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, hostAddresses(input, options.nodeIp)),
    // On the node the sysctl decides; kproxy writes it by this setting.
    dropInvalid: !(machine.tcpBeLiberal ?? config.conntrack.tcpBeLiberal),
    nfacct: machine.nfacct,
  });
}

/** Input of `iptables-restore --noflush`: own chains and rules of each table, then the jumps from built-in chains. */
export function render(input: DesiredInput, family: IpFamily): string {
  const plan = iptablesPlan(input, family);
  return TABLES.map((table) => {
    // A chain that is created but not filled is the kubelet's: naming it here would flush it.
    const jumps = plan.base.jumps.filter((jump) =>
      jump.table === table && plan.base.chains[table].includes(jump.target)
    );
    return tableBlock(table, [
      ...planLines(plan, table),
      ...jumps.map(({ chain, args }) => `-I ${chain} ${args}`),
    ]);
  }).join("");
}

/** Rules in an empty kernel after a full sync. */
export function rules(input: DesiredInput, family: IpFamily): RulesetSnapshot {
  const plan = iptablesPlan(input, family);
  const tables = new Map(kernelTables(renderPlan(plan), plan.base.jumps));
  // The kubelet's chains are created by other means than the restore text.
  for (const { table, target } of plan.base.jumps) {
    const chains = tables.get(table);
    if (chains !== undefined && !chains.has(target)) {
      tables.set(table, new Map([...chains, [target, EMPTY_CHAIN]]));
    }
  }
  return { ...emptySnapshot(family), iptables: [{ variant: "", tables }] };
}

const EMPTY_CHAIN: SavedChain = { policy: "-", rules: [] };

/** Reports differences to `list`. */
export function compare(
  { desired, family, tables, isKernel }: Comparison,
  list: DifferenceList,
): void {
  // Counters in rules are no difference: they depend on what the machine had when the rules were written.
  const machine = { ...desired.machine, nfacct: namesCounters(tables) };
  const plan = iptablesPlan({ ...desired, machine }, family);
  compareIptables(plan, tables, family, list);
  // `kproxy render` prints no canary chains.
  for (const table of isKernel ? ["mangle", ...TABLES] : []) {
    if (tables.get(table)?.has(CANARY_CHAIN) === true) continue;
    list.add(null, {
      kind: "missing",
      place: chainPlace(table, CANARY_CHAIN),
      cause: "the canary is gone: another program flushed the table",
      wanted: [`:${CANARY_CHAIN}`],
      found: [],
    });
  }
}

function namesCounters(tables: IptablesRuleset): boolean {
  const places = [["nat", "KUBE-NODEPORTS"], ["filter", "KUBE-FORWARD"]] as const;
  return places.some(([table, chain]) =>
    tables.get(table)?.get(chain)?.rules.some((rule) => rule.includes("--nfacct-name"))
  );
}
