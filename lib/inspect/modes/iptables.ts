/**
 * Mode iptables: the rules that a family should hold, and where those that are there differ.
 *
 * @module
 */
import { CANARY_CHAIN, DISPATCH_CHAINS, isServiceChain } from "../../backend/iptables/plan/chains.ts";
import { configuredIptables, planIptables } from "../../backend/iptables/plan/plan.ts";
import { planLines, renderPlan } from "../../backend/iptables/plan/render.ts";
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { baseChains } from "../../backend/iptables/store/full_sync.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily } from "../../model/objects.ts";
import { groupByChain, ruleOf } from "../../netfilter/iptables_chains.ts";
import { type Table, tableBlock } from "../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset, SavedChain } from "../../netfilter/iptables_save.ts";
import { holdsLines } from "../../netfilter/printed_iptables_rule.ts";
import { emptySnapshot, kernelTables, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import {
  chainDifference,
  chainPlace,
  compareSharedChain,
  jumpDifference,
  ruleText,
  serviceOfRule,
} from "../check/chains.ts";
import type { Comparison, DifferenceList } from "../check/check.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "../desired/desired.ts";

const TABLES: readonly Table[] = ["filter", "nat"];

/** The plan of all Services of one family. */
function iptablesPlan(input: DesiredInput, family: IpFamily): IptablesPlan {
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
export function render(input: DesiredInput, family: IpFamily): string {
  const plan = iptablesPlan(input, family);
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

/** What an empty kernel holds after a full sync. */
export function rules(input: DesiredInput, family: IpFamily): RulesetSnapshot {
  const plan = iptablesPlan(input, family);
  const tables = new Map(kernelTables(renderPlan(plan), plan.base.jumps));
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

/** Reports to `list` what differs. */
export function compare(
  { desired, family, tables, isKernel }: Comparison,
  list: DifferenceList,
): void {
  // Whether rules add to counters is no fault: it depends on what the machine had when they were written.
  const machine = { ...desired.machine, nfacct: namesCounters(tables) };
  const plan = iptablesPlan({ ...desired, machine }, family);
  compareBase(plan, tables, isKernel, list);
  const nat = tables.get("nat");
  const stale = new Set([...nat?.keys() ?? []].filter(isServiceChain));
  for (const [service, rules] of plan.services) {
    const bodies = groupByChain(rules?.rules ?? []);
    for (const chain of rules?.chains ?? []) {
      stale.delete(chain);
      const found = nat?.get(chain);
      const lines = bodies.get(chain) ?? [];
      if (holdsLines(found, lines, family)) continue;
      const wanted = lines.map((line) => ruleOf(line, chain));
      const place = chainPlace("nat", chain);
      list.add(service, chainDifference({ place, wanted, found: found?.rules, textOf: ruleText }));
    }
  }
  for (const table of TABLES) {
    for (const chain of DISPATCH_CHAINS[table]) {
      const [head, tail] = [plan.base.head[table], plan.base.tail[table]];
      const found = tables.get(table)?.get(chain)?.rules;
      compareSharedChain({ services: plan.services, table, chain, head, tail, found }, list);
    }
  }
  for (const chain of stale) {
    const found = nat?.get(chain)?.rules ?? [];
    const name = found.map(serviceOfRule).find((service) => service !== null);
    const of = name === undefined ? "some Service" : `Service ${name}`;
    const cause = `a chain of ${of}, which nothing wants any more`;
    list.leave({ place: chainPlace("nat", chain), cause, wanted: [], found });
  }
}

function namesCounters(tables: IptablesRuleset): boolean {
  const places = [["nat", "KUBE-NODEPORTS"], ["filter", "KUBE-FORWARD"]] as const;
  return places.some(([table, chain]) =>
    tables.get(table)?.get(chain)?.rules.some((rule) => rule.includes("--nfacct-name"))
  );
}

/** Jumps, canaries and the chains without rules of Services, beside whose rules others may write theirs. */
function compareBase(
  plan: IptablesPlan,
  tables: IptablesRuleset,
  isKernel: boolean,
  list: DifferenceList,
): void {
  for (const table of TABLES) {
    const owned = new Set(plan.base.chains[table]);
    for (const [chain, wanted] of baseChains(plan, table)) {
      const found = tables.get(table)?.get(chain)?.rules;
      const isOwn = owned.has(chain) || found === undefined && chain.startsWith("KUBE-");
      const place = chainPlace(table, chain);
      const pair = { place, wanted, found: isOwn ? found : found ?? [], textOf: ruleText };
      const shared = chainDifference({ ...pair, isShared: true });
      // Where rules of ours are missing, what stands there instead shows what became of them.
      const difference = shared === null || !isOwn ? shared : chainDifference(pair);
      // The kernel's own chains hold jumps in the order in which others have put theirs between.
      if (!isOwn && difference?.kind === "order") continue;
      list.add(null, difference === null || isOwn ? difference : jumpDifference(difference));
    }
  }
  // `kproxy render` prints no canary.
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
