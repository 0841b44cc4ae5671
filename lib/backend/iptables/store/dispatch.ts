/**
 * Edits of the chains in which several Services have rules: single rules are deleted and added, the rest stays.
 *
 * @module
 */
import { groupByChain, type Table } from "../../../netfilter/iptables_jumps.ts";
import { SERVICES_CHAIN } from "../plan/chains.ts";
import type { BaseRules, DispatchRule, ServiceRules } from "../plan/ruleset.ts";
import type { IptablesTransaction } from "./transaction.ts";

/** Rules by chain of our chains in which no Service has rules; none for empty chains. */
export function staticBodies(
  { dispatch, head, tail }: Pick<BaseRules, "dispatch" | "head" | "tail">,
  table: Table,
): Map<string, string[]> {
  const bodies = groupByChain([...head[table], ...tail[table]]);
  for (const chain of dispatch[table]) bodies.delete(chain);
  return bodies;
}

/** Rules of a Service without chains of its own. */
export function sharedRules(dispatch: readonly DispatchRule[]): ServiceRules {
  const filter = dispatch.filter(({ table }) => table === "filter").length;
  const ruleCounts = { filter, nat: dispatch.length - filter };
  return { dispatch, chains: [], chainCount: 0, rules: [], ruleText: "", ruleCounts };
}

/** True if both lists say the same in the same order. */
function sameDispatch(left: readonly DispatchRule[], right: readonly DispatchRule[]): boolean {
  return left.length === right.length && left.every((rule, at) => textOf(rule) === textOf(right[at]!));
}

const textOf = ({ table, chain, rule }: DispatchRule): string => `${table} ${chain} ${rule}`;

/** The match of a rule, whatever its target: two rules with equal matches must keep their order. */
function matchOf({ table, chain, rule }: DispatchRule): string {
  return `${table} ${chain}${rule.slice(rule.indexOf(" -m ", 3), rule.lastIndexOf(" -j "))}`;
}

/** The group that keeps its order where Services have no chains of their own. */
function orderOf(rule: DispatchRule): string {
  return rule.table === "nat" ? rule.chain : textOf(rule);
}

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

/** Adds the edits that change the rules of one Service, as few as keep their order where it matters. */
export function changeDispatch(
  before: readonly DispatchRule[],
  after: readonly DispatchRule[],
  { edits }: IptablesTransaction,
  { hasServiceChains }: Pick<BaseRules, "hasServiceChains">,
): void {
  if (sameDispatch(before, after)) return;
  // New rules are not inserted where the plan has them. An old rule for the same packets (an external IP that is a
  // load-balancer IP too) is therefore written again, behind or before the new one as planned.
  const groupOf = (rule: DispatchRule): string => hasServiceChains ? matchOf(rule) : orderOf(rule);
  const groups = new Set(without(after, before).map(groupOf));
  const isTouched = (rule: DispatchRule): boolean => groups.has(groupOf(rule));
  const removed = [...without(before.filter((rule) => !isTouched(rule)), after), ...before.filter(isTouched)];
  // By text, not by number: the tools read the whole chain for either, and a text that is not there is an error.
  for (const { table, chain, rule } of removed) edits[table].removed.push(`-D ${chain} ${rule}`);
  const inserted: string[] = [];
  for (const { table, chain, rule } of after.filter(isTouched)) {
    // Behind this chain's tail nothing would ever be reached. Each -I goes to the top, so the last one written ends up first.
    if (table === "nat" && chain === SERVICES_CHAIN) inserted.unshift(`-I ${chain} ${rule}`);
    else edits[table].added.push(`-A ${chain} ${rule}`);
  }
  edits.nat.added.push(...inserted);
}
