/**
 * The rules of the two tables as they are while certain sets have entries.
 *
 * @module
 */
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { BaseRule, BaseRules } from "../plan/ruleset.ts";

/** Says whether a set has entries, by its name. */
export type Filled = (set: string) => boolean;

/** `-A CHAIN …` of those rules whose sets have entries, in order. */
export function ruleLines(rules: readonly BaseRule[], filled: Filled): string[] {
  return rules.filter(({ needs }) => needs === "" || filled(needs))
    .map(({ chain, rule }) => `-A ${chain} ${rule}`);
}

/** Every static chain of a table → its `-A` lines; KUBE-IPVS-OUT-FILTER, which the Services fill, is left out. */
export function chainBodies(base: BaseRules, table: Table, filled: Filled): Map<string, string[]> {
  const bodies = new Map<string, string[]>();
  for (const chain of base.chains[table]) if (chain !== OUT_FILTER_CHAIN) bodies.set(chain, []);
  for (const rule of [...base.head[table], ...base.tail[table]]) {
    if (rule.needs !== "" && !filled(rule.needs)) continue;
    bodies.get(rule.chain)?.push(`-A ${rule.chain} ${rule.rule}`);
  }
  return bodies;
}
