/**
 * How the chains shared by all Services change from one plan to the next: single rules leave and enter, the rest stays.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { groupByChain, ruleOf } from "../../../netfilter/iptables_chains.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import {
  EXTERNAL_SERVICES_CHAIN,
  NODE_PORTS_CHAIN,
  PROXY_FIREWALL_CHAIN,
  SERVICES_CHAIN,
} from "../plan/chains.ts";
import type { BaseRules, DispatchRule, IptablesPlan } from "../plan/ruleset.ts";

/** The chains in which several Services have rules. */
export const DISPATCH_CHAINS: Readonly<Record<Table, readonly string[]>> = {
  filter: [SERVICES_CHAIN, EXTERNAL_SERVICES_CHAIN, NODE_PORTS_CHAIN, PROXY_FIREWALL_CHAIN],
  nat: [SERVICES_CHAIN, NODE_PORTS_CHAIN],
};

/** True if several Services have rules in the chain. */
export function isDispatchChain(table: Table, chain: string): boolean {
  return DISPATCH_CHAINS[table].includes(chain);
}

/** The bodies of the chains of ours that no Service has rules in, as far as they have any. */
export function staticBodies(
  { head, tail }: Pick<BaseRules, "head" | "tail">,
  table: Table,
): Map<string, string[]> {
  const bodies = groupByChain([...head[table], ...tail[table]]);
  for (const chain of [...bodies.keys()]) if (isDispatchChain(table, chain)) bodies.delete(chain);
  return bodies;
}

/** A name for a shared chain that its table is part of. */
export function dispatchChainKey(table: Table, chain: string): string {
  return `${table} ${chain}`;
}

/** The part of `CommittedRules` that is needed to find the edits. */
export interface CommittedDispatch {
  readonly base: BaseRules;
  readonly serviceNames: Iterable<NamespacedName>;
  service(name: NamespacedName): { readonly dispatch: readonly DispatchRule[] } | undefined;
  /** True if the chain is to be written anew, because nobody knows what is in it. */
  isDispatchDamaged(table: Table, chain: string): boolean;
}

/** The change of one shared chain. Texts are without `-A CHAIN `. */
export interface DispatchEdit {
  readonly table: Table;
  readonly chain: string;
  readonly removed: readonly string[];
  /** New rules at the top, in their final order. */
  readonly inserted: readonly string[];
  /** New rules at the end, in their final order. */
  readonly appended: readonly string[];
}

/** True if both lists say the same in the same order. */
export function sameDispatch(left: readonly DispatchRule[], right: readonly DispatchRule[]): boolean {
  return left.length === right.length &&
    left.every((rule, index) => sameRule(rule, right[index]!));
}

function sameRule(left: DispatchRule, right: DispatchRule): boolean {
  return left.rule === right.rule && left.chain === right.chain && left.table === right.table;
}

/** Services of the kernel that a plan of all Services no longer has. */
export function goneServices(plan: IptablesPlan, committed: CommittedDispatch): NamespacedName[] {
  return plan.all ? [...committed.serviceNames].filter((name) => !plan.services.has(name)) : [];
}

/** Which packets a rule takes, whatever it does with them: two rules equal in this must keep their order. */
function matchOf(rule: DispatchRule): string {
  return `${rule.table} ${rule.chain}${
    rule.rule.slice(rule.rule.indexOf(" -m ", 3), rule.rule.lastIndexOf(" -j "))
  }`;
}

const textOf = (rule: DispatchRule): string => `${rule.table} ${rule.chain} ${rule.rule}`;

/** Takes from `rules` as many of each text as `others` has. */
function without(rules: readonly DispatchRule[], others: readonly DispatchRule[]): DispatchRule[] {
  const counts = new Map<string, number>();
  for (const other of others) counts.set(textOf(other), (counts.get(textOf(other)) ?? 0) + 1);
  return rules.filter((rule) => {
    const count = counts.get(textOf(rule)) ?? 0;
    if (count > 0) counts.set(textOf(rule), count - 1);
    return count === 0;
  });
}

/** The rules of one Service that leave and enter, as few as keep their order where it matters. */
function serviceEdit(
  before: readonly DispatchRule[],
  after: readonly DispatchRule[],
): { removed: readonly DispatchRule[]; added: readonly DispatchRule[] } {
  // New rules do not come to stand where the plan has them. An old rule for the same packets (an external IP that is a
  // load-balancer IP too) is therefore written again, behind or before the new one as planned.
  const matches = new Set(without(after, before).map(matchOf));
  const isTouched = (rule: DispatchRule): boolean => matches.has(matchOf(rule));
  const touchedBefore = before.filter(isTouched);
  const removed = [...without(before.filter((rule) => !isTouched(rule)), after), ...touchedBefore];
  return { removed, added: after.filter(isTouched) };
}

interface EditDraft {
  readonly table: Table;
  readonly chain: string;
  readonly removed: string[];
  readonly inserted: string[];
  readonly appended: string[];
}

/** The edits of every shared chain that a plan changes, without those that are written anew. */
export function dispatchEdits(plan: IptablesPlan, committed: CommittedDispatch): DispatchEdit[] {
  const drafts = new Map<string, EditDraft>();
  const draft = (table: Table, chain: string): EditDraft => {
    const key = `${table} ${chain}`;
    let found = drafts.get(key);
    if (found === undefined) {
      drafts.set(key, found = { table, chain, removed: [], inserted: [], appended: [] });
    }
    return found;
  };
  const change = (before: readonly DispatchRule[], after: readonly DispatchRule[]): void => {
    if (sameDispatch(before, after)) return;
    const { removed, added } = serviceEdit(before, after);
    for (const { table, chain, rule } of removed) draft(table, chain).removed.push(rule);
    for (const { table, chain, rule } of added) {
      const { inserted, appended } = draft(table, chain);
      // Behind this chain's tail nothing would ever be reached.
      (table === "nat" && chain === SERVICES_CHAIN ? inserted : appended).push(rule);
    }
  };
  for (const name of goneServices(plan, committed)) change(committed.service(name)!.dispatch, []);
  for (const [name, rules] of plan.services) {
    change(committed.service(name)?.dispatch ?? [], rules?.dispatch ?? []);
  }
  const before = committed.base.tail.nat, after = plan.base.tail.nat;
  if (before.join("\n") !== after.join("\n")) {
    const tail = draft("nat", SERVICES_CHAIN);
    for (const line of before) tail.removed.push(ruleOf(line, SERVICES_CHAIN));
    for (const line of after) tail.appended.push(ruleOf(line, SERVICES_CHAIN));
  }
  return [...drafts.values()].filter(({ table, chain }) => !committed.isDispatchDamaged(table, chain));
}

/** All of one shared chain. Lines are complete: `-A CHAIN …`. */
export interface DispatchBody {
  readonly table: Table;
  readonly chain: string;
  readonly lines: readonly string[];
}

/** What belongs into the shared chains that somebody damaged, in the order of a full sync. */
export function damagedDispatch(plan: IptablesPlan, committed: CommittedDispatch): DispatchBody[] {
  const damaged = (["filter", "nat"] as const).flatMap((table) =>
    DISPATCH_CHAINS[table].filter((chain) => committed.isDispatchDamaged(table, chain))
      .map((chain) => ({ table, chain, lines: [] as string[] }))
  );
  if (damaged.length === 0) return [];
  const gone = new Set(goneServices(plan, committed));
  const names = new Set([...committed.serviceNames, ...plan.services.keys()]).difference(gone);
  const dispatch = [...names].sort().flatMap((name) =>
    (plan.services.has(name) ? plan.services.get(name) : committed.service(name))?.dispatch ?? []
  );
  for (const { table, chain, lines } of damaged) {
    const add = (line: string): void => void (line.startsWith(`-A ${chain} `) && lines.push(line));
    plan.base.head[table].forEach(add);
    for (const rule of dispatch) {
      if (rule.table === table && rule.chain === chain) lines.push(`-A ${chain} ${rule.rule}`);
    }
    plan.base.tail[table].forEach(add);
  }
  return damaged;
}
