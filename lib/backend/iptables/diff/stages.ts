/**
 * A full sync: everything is written anew beside and over whatever the kernel holds, without a moment in which traffic
 * that was served before and is served after is not.
 *
 * @module
 */
import { groupByChain } from "../../../netfilter/iptables_chains.ts";
import {
  chainLine,
  editJumps,
  type JumpRule,
  jumpsByChain,
  type Table,
} from "../../../netfilter/iptables_jumps.ts";
import { ENSURED_CHAINS } from "../plan/base_rules.ts";
import {
  isServiceChain,
  KUBELET_FIREWALL_CHAIN,
  MARK_MASQ_CHAIN,
  NODE_PORTS_CHAIN,
  POSTROUTING_CHAIN,
  SERVICE_CHAIN_PREFIXES,
  SERVICES_CHAIN,
} from "../plan/chains.ts";
import { countRules, planLines, wantedServices } from "../plan/render.ts";
import type { IptablesPlan, ObservedTables, Operations, ServiceRules, Transaction } from "../plan/ruleset.ts";

/** How a full sync is divided. */
export interface StageOptions {
  /**
   * True for the nft variant, whose cost per transaction grows with the square of the chains in it. The legacy variant
   * replaces the whole table each time, so there one transaction per table is right.
   */
  readonly staged: boolean;
  /** Services of about ten endpoints that go into one transaction. */
  readonly servicesPerStage: number;
}

/** Service chain, external chain and ten endpoint chains: what `servicesPerStage` is meant for. */
const CHAINS_PER_SERVICE = 12;

/**
 * The transactions that lead from any state of the kernel to exactly the plan: nothing of ours that is not planned stays,
 * nothing that is not ours is touched. After each of them traffic follows either the old rules or the new ones. Where there are no old
 * ones, the first Services are served before the others.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function stageFullSync(
  plan: IptablesPlan,
  observed: ObservedTables,
  options: StageOptions,
): Operations {
  if (!plan.all) throw new TypeError("A full sync needs a plan of all Services");
  const chainsPerStage = Math.max(1, Math.round(options.servicesPerStage * CHAINS_PER_SERVICE));
  const stale = staleChains(plan, observed);
  const filter = {
    table: "filter" as const,
    lines: [
      ...ensuredChains(plan, "filter", observed),
      ...planLines(plan, "filter"),
      ...jumpLines(plan, "filter", observed),
    ],
  };
  if (!options.staged || isFewChains(plan, chainsPerStage - stale.length)) {
    return { transactions: [filter, wholeNat(plan, observed, stale)] };
  }
  const ends = staleStages(stale, chainsPerStage);
  if (isWithoutDispatch(observed)) {
    // Nobody is served yet, so nobody needs to wait for the last one.
    const { first, rest } = divideServices(plan, chainsPerStage);
    return {
      transactions: [
        filter,
        beginning(first, observed),
        ...chainStages(rest, chainsPerStage),
        switchStage(plan, []),
        ...ends,
      ],
    };
  }
  return {
    transactions: [
      masqueradeStage(plan, observed),
      ...chainStages(plan, chainsPerStage),
      // Verdicts about addresses that nat serves do no harm, and source ranges must be enforced before they are needed.
      filter,
      switchStage(plan, jumpLines(plan, "nat", observed, (jump) => jump.target !== POSTROUTING_CHAIN)),
      ...ends,
    ],
  };
}

function isFewChains(plan: IptablesPlan, most: number): boolean {
  let count = 0;
  for (const { chainCount } of wantedServices(plan)) count += chainCount;
  return count <= most;
}

/** True if the kernel leads no packet to any Service: the chains from which that is done are not there. */
function isWithoutDispatch({ chains: { nat }, unreadable }: ObservedTables): boolean {
  return !unreadable.has("nat") && !nat.has(SERVICES_CHAIN) && !nat.has(NODE_PORTS_CHAIN);
}

/** The Services that come first, as many as one transaction takes, and the others. */
function divideServices(
  plan: IptablesPlan,
  chainsPerStage: number,
): { readonly first: IptablesPlan; readonly rest: IptablesPlan } {
  const services = [...plan.services];
  let [chainCount, end] = [0, 0];
  for (const [, rules] of services) {
    chainCount += rules?.chainCount ?? 0;
    if (chainCount > chainsPerStage) break;
    end++;
  }
  return {
    first: { ...plan, services: new Map(services.slice(0, end)) },
    rest: { ...plan, services: new Map(services.slice(end)) },
  };
}

/** All that nat has whatever the Services are, and the first of them. What leads to Services is written again by the switch. */
function beginning(first: IptablesPlan, observed: ObservedTables): Transaction {
  const transaction = wholeNat(first, observed, []);
  let again = first.base.tail.nat.length;
  for (const service of wantedServices(first)) again += service.ruleCounts.nat - ownRuleCount(service);
  return { ...transaction, ruleCount: countRules(transaction) - again };
}

/** How many rules its own chains have. */
function ownRuleCount({ ruleCounts, dispatch }: ServiceRules): number {
  let count = ruleCounts.nat;
  for (const { table } of dispatch) if (table === "nat") count--;
  return count;
}

/** Service chains of the kernel that the plan does not have, those that jump before those they may jump to. */
function staleChains(plan: IptablesPlan, observed: ObservedTables): string[] {
  const stale = new Set([...observed.chains.nat].filter(isServiceChain));
  if (stale.size === 0) return [];
  for (const { chains } of wantedServices(plan)) for (const chain of chains) stale.delete(chain);
  for (const chain of plan.keptChains ?? []) stale.delete(chain);
  const sorted = [...stale].sort();
  return SERVICE_CHAIN_PREFIXES.flatMap((prefix) => sorted.filter((chain) => chain.startsWith(prefix)));
}

/** Creates chains that must exist although the plan does not fill them, where they do not exist. */
function ensuredChains(plan: IptablesPlan, table: Table, observed: ObservedTables): string[] {
  return ENSURED_CHAINS[table]
    .filter((chain) => !plan.base.chains[table].includes(chain) && !observed.chains[table].has(chain))
    .map(chainLine);
}

/** nat in one transaction, as the legacy variant and small clusters get it. */
function wholeNat(plan: IptablesPlan, observed: ObservedTables, stale: readonly string[]): Transaction {
  const lines = stale.map(chainLine);
  for (const line of planLines(plan, "nat")) lines.push(line);
  for (const chain of stale) lines.push(`-X ${chain}`);
  lines.push(...jumpLines(plan, "nat", observed));
  return { table: "nat", lines };
}

/** Makes the chains that every Service's rules may jump to. */
export function chainsForServices(plan: IptablesPlan, observed: ObservedTables): Transaction {
  return masqueradeStage(plan, observed);
}

/** Masquerading comes first: traffic that is translated needs it at once. Live dispatch chains keep their rules. */
function masqueradeStage(plan: IptablesPlan, observed: ObservedTables): Transaction {
  const filled = [POSTROUTING_CHAIN, MARK_MASQ_CHAIN];
  const bodies = groupByChain(plan.base.head.nat);
  const lines = plan.base.chains.nat
    .filter((chain) => filled.includes(chain) || !observed.chains.nat.has(chain))
    .map(chainLine);
  for (const chain of filled) lines.push(...bodies.get(chain)!);
  lines.push(...jumpLines(plan, "nat", observed, (jump) => jump.target === POSTROUTING_CHAIN));
  return { table: "nat", lines };
}

/**
 * The Services' own chains, in portions. New ones are not reachable yet; one that the kernel has already gets its new rules
 * together with all chains it leads to, or after them.
 */
function chainStages(plan: IptablesPlan, chainsPerStage: number): Transaction[] {
  const stages: Transaction[] = [];
  let batch: ServiceRules[] = [], batchChains = 0;
  const flush = (): void => {
    const ruleCount = batch.reduce((sum, service) => sum + ownRuleCount(service), 0);
    if (batch.length > 0) stages.push(chainStage(batch, ruleCount));
    batch = [];
    batchChains = 0;
  };
  for (const service of wantedServices(plan)) {
    const count = service.chainCount;
    if (count === 0) continue;
    if (batchChains + count > chainsPerStage) flush();
    if (count <= chainsPerStage) {
      batch.push(service);
      batchChains += count;
    } else {
      for (const portion of endpointPortions(service, chainsPerStage)) {
        stages.push(chainStage([portion], portion.ruleCount));
      }
    }
  }
  flush();
  return stages;
}

/** Its text is made when it is read, so that only one stage of many is in memory. */
function chainStage(
  services: readonly Pick<ServiceRules, "chains" | "ruleText">[],
  ruleCount: number,
): Transaction {
  const text = (): string => {
    const parts: string[] = [];
    for (const { chains } of services) for (const chain of chains) parts.push(chainLine(chain));
    for (const { ruleText } of services) parts.push(ruleText);
    return parts.join("\n");
  };
  return {
    table: "nat",
    ruleCount,
    get lines() {
      return text().split("\n");
    },
    get text() {
      return text();
    },
  };
}

/** Some chains of a Service. */
interface Portion extends Pick<ServiceRules, "chains" | "ruleText"> {
  readonly ruleCount: number;
}

/** A Service of very many endpoints: their chains in portions, then the chains that choose among them. */
function endpointPortions(
  service: ServiceRules,
  chainsPerStage: number,
): readonly Portion[] {
  const bodies = groupByChain(service.rules);
  const isEndpoint = (chain: string): boolean => chain.startsWith("KUBE-SEP-");
  const endpointChains = service.chains.filter(isEndpoint);
  const portionOf = (chains: readonly string[]): Portion => {
    const rules = chains.flatMap((chain) => bodies.get(chain)!);
    return { chains, ruleText: rules.join("\n"), ruleCount: rules.length };
  };
  const portions: Portion[] = [];
  for (let at = 0; at < endpointChains.length; at += chainsPerStage) {
    portions.push(portionOf(endpointChains.slice(at, at + chainsPerStage)));
  }
  portions.push(portionOf(service.chains.filter((chain) => !isEndpoint(chain))));
  return portions;
}

/** Points the dispatch chains at the new chains, all at once. */
function switchStage(plan: IptablesPlan, jumps: readonly string[]): Transaction {
  const done = [POSTROUTING_CHAIN, MARK_MASQ_CHAIN];
  const lines = plan.base.chains.nat.filter((chain) => !done.includes(chain)).map(chainLine);
  for (const { dispatch } of wantedServices(plan)) {
    for (const { table, chain, rule } of dispatch) if (table === "nat") lines.push(`-A ${chain} ${rule}`);
  }
  for (const rule of plan.base.tail.nat) lines.push(rule);
  lines.push(...jumps);
  return { table: "nat", lines };
}

function staleStages(stale: readonly string[], chainsPerStage: number): Transaction[] {
  const stages: Transaction[] = [];
  for (let at = 0; at < stale.length; at += chainsPerStage) {
    const chains = stale.slice(at, at + chainsPerStage);
    stages.push({ table: "nat", lines: [...chains.map(chainLine), ...chains.map((chain) => `-X ${chain}`)] });
  }
  return stages;
}

function jumpLines(
  plan: IptablesPlan,
  table: Table,
  observed: ObservedTables,
  isWanted: (jump: JumpRule) => boolean = () => true,
): string[] {
  const jumps = jumpsByChain(plan.base.jumps, table);
  // Kubelet puts its jump where it likes, so ours are not put behind it unless it is the first.
  const isInPlace = ({ target }: JumpRule, at: number): boolean =>
    target !== KUBELET_FIREWALL_CHAIN || at === 0;
  return [...jumps].flatMap(([chain, ofChain]) => {
    const there = observed.builtinRules[table].get(chain) ?? [];
    const { surplus, missing } = editJumps(there, ofChain, { isWanted, isInPlace });
    return [
      ...surplus.map((args) => `-D ${chain} ${args}`),
      ...missing.map(({ place, args }) => `-I ${chain} ${place === 1 ? "" : `${place} `}${args}`),
    ];
  });
}
