/**
 * Plans as text for `iptables-restore --noflush`.
 *
 * @module
 */
import { chainLine, type Table, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesPlan } from "./ruleset.ts";

/**
 * The lines of one table of a plan: chains, then base rules, then those of each Service, then the base rules
 * that must be last. In nat a Service's dispatch rules come before those of its own chains.
 */
export function planLines(plan: IptablesPlan, table: Table): string[] {
  const lines = plan.base.chains[table].map(chainLine);
  const services = [...plan.services.values()].filter((service) => service !== null);
  if (table === "nat") {
    for (const { chains } of services) for (const chain of chains) lines.push(chainLine(chain));
  }
  for (const rule of plan.base.head[table]) lines.push(rule);
  for (const { dispatch, rules } of services) {
    for (const rule of dispatch) if (rule.table === table) lines.push(`-A ${rule.chain} ${rule.rule}`);
    if (table === "nat") { for (const rule of rules) lines.push(rule); }
  }
  for (const rule of plan.base.tail[table]) lines.push(rule);
  return lines;
}

/** The whole plan as text, filter first. It does not contain the jumps from built-in chains. */
export function renderPlan(plan: IptablesPlan): string {
  return (["filter", "nat"] as const).map((table) => tableBlock(table, planLines(plan, table))).join("");
}
