/**
 * Notices that something else removed our rules: canary chains, as kube-proxy has them, and rules that are always there.
 *
 * @module
 */
import { bodyRules, jumpRules } from "../../../netfilter/iptables_chains.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { staticBodies } from "./diff_dispatch.ts";
import type { BaseRules } from "../plan/ruleset.ts";

/** Exists in every table we use, nothing leads to it: if it is gone, the table was flushed. */
export const CANARY_CHAIN = "KUBE-PROXY-CANARY";

/** True if the text of iptables-save holds the canary of table mangle, which no rule of ours shares. */
export function hasMangleCanary(saved: string): boolean {
  const start = saved.indexOf("*mangle\n");
  return start >= 0 && saved.slice(start, saved.indexOf("\nCOMMIT", start)).includes(`\n:${CANARY_CHAIN} `);
}

/** Rules that must be there as long as nobody flushes our tables: table (nat and filter) → chain → canonical rule texts. */
export type Sentinels = ReadonlyMap<Table, ReadonlyMap<string, readonly string[]>>;

/**
 * The jumps and the rules of the chains without rules of Services. Those of KUBE-FIREWALL, too, although kubelet has them as well: a node
 * whose kubelet leaves iptables alone would be open to strangers on 127.0.0.0/8.
 */
export function sentinels(base: BaseRules): Sentinels {
  const ofTable = (table: Table): Map<string, readonly string[]> =>
    new Map([...bodyRules(staticBodies(base, table)), ...jumpRules(base.jumps, table)]);
  return new Map([["nat", ofTable("nat")], ["filter", ofTable("filter")]]);
}
