/**
 * Notices that something else removed our rules: canary chains, as kube-proxy has them, and rules that are always there.
 *
 * @module
 */
import { canonicalRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { groupByChain } from "./committed.ts";
import { isDispatchChain, ruleOf } from "./diff_dispatch.ts";
import type { BaseRules } from "../plan/ruleset.ts";

/** Exists in every table we use, nothing leads to it: if it is gone, the table was flushed. */
export const CANARY_CHAIN = "KUBE-PROXY-CANARY";

/** True if the text of iptables-save holds the canary of table mangle, which no rule of ours shares. */
export function hasMangleCanary(saved: string): boolean {
  const start = saved.indexOf("*mangle\n");
  return start >= 0 && saved.slice(start, saved.indexOf("\nCOMMIT", start)).includes(`\n:${CANARY_CHAIN} `);
}

/** Rules that must be there as long as nobody flushes our tables: table → chain → canonical rule texts. */
export type Sentinels = ReadonlyMap<Table, ReadonlyMap<string, readonly string[]>>;

/**
 * The jumps and the rules of the chains without rules of Services. Those of KUBE-FIREWALL, too, although kubelet has them as well: a node
 * whose kubelet leaves iptables alone would be open to strangers on 127.0.0.0/8.
 */
export function sentinels(base: BaseRules): Sentinels {
  const wanted = new Map<Table, Map<string, string[]>>();
  for (const table of ["nat", "filter"] as const) {
    const chains = new Map<string, string[]>();
    for (const [chain, body] of groupByChain([...base.head[table], ...base.tail[table]])) {
      if (isDispatchChain(table, chain)) continue;
      chains.set(chain, body.map((line) => canonicalRuleText(ruleOf(line, chain))));
    }
    for (const jump of base.jumps) {
      if (jump.table !== table) continue;
      chains.set(jump.chain, [...chains.get(jump.chain) ?? [], canonicalRuleText(jump.args)]);
    }
    wanted.set(table, chains);
  }
  return wanted;
}
