/**
 * Notices that something else removed our rules: canary chains, as kube-proxy has them, and rules that are always there.
 *
 * @module
 */
import { canonicalRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import { groupByChain } from "./committed.ts";
import { KUBELET_FIREWALL_CHAIN } from "./chains.ts";
import { isDispatchChain, ruleOf } from "./diff_dispatch.ts";
import type { BaseRules, Table } from "./ruleset.ts";

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
 * The jumps and the rules of the static chains. The chains that Services share are left out, because listing one of 10,000
 * rules takes 75 ms; those that kubelet fills, because they are its own.
 */
export function sentinels(base: BaseRules): Sentinels {
  const wanted = new Map<Table, Map<string, string[]>>();
  for (const table of ["nat", "filter"] as const) {
    const chains = new Map<string, string[]>();
    for (const [chain, body] of groupByChain([...base.head[table], ...base.tail[table]])) {
      if (chain === KUBELET_FIREWALL_CHAIN || isDispatchChain(table, chain)) continue;
      chains.set(chain, body.map((line) => canonicalRuleText(ruleOf(line, chain))));
    }
    for (const jump of base.jumps) {
      if (jump.table !== table || jump.target === KUBELET_FIREWALL_CHAIN) continue;
      chains.set(jump.chain, [...chains.get(jump.chain) ?? [], canonicalRuleText(jump.args)]);
    }
    wanted.set(table, chains);
  }
  return wanted;
}

/**
 * A text for iptables-restore that lists canaries and sentinels and changes nothing. It lists chains instead of checking
 * rules, because a check of a jump reads the whole chain it leads to, and because ip6tables-legacy-restore passes every check.
 */
export function canaryProbe(wanted: Sentinels, withMangle: boolean): string {
  const blocks = [...wanted].map(([table, chains]) =>
    [`*${table}`, ...[CANARY_CHAIN, ...chains.keys()].map((chain) => `-S ${chain}`), "COMMIT", ""].join("\n")
  );
  return (withMangle ? `*mangle\n-S ${CANARY_CHAIN}\nCOMMIT\n` : "") + blocks.join("");
}

/** True if what {@linkcode canaryProbe} printed holds all sentinels. */
export function holdsSentinels(listed: string, wanted: Sentinels): boolean {
  const found = new Set<string>();
  for (const [chain, body] of groupByChain(listed.split("\n").filter((line) => line.startsWith("-A ")))) {
    // A rule of others that we cannot read is not one of ours.
    for (const line of body) found.add(`${chain} ${readable(ruleOf(line, chain)) ?? ""}`);
  }
  return [...wanted.values()].every((chains) =>
    [...chains].every(([chain, rules]) => rules.every((rule) => found.has(`${chain} ${rule}`)))
  );
}

/** The canonical text of a rule, or null if it is none that we can read. */
export function readable(rule: string): string | null {
  try {
    return canonicalRuleText(rule);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
