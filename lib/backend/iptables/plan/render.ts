/**
 * Plans and operations as text for `iptables-restore --noflush`.
 *
 * @module
 */
import { chainLine, type Table } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesPlan, Operations, ServiceRules, Transaction } from "./ruleset.ts";

/** What the Services of a plan want, emission order; those that are gone want nothing. */
export function wantedServices(plan: IptablesPlan): ServiceRules[] {
  return [...plan.services.values()].filter((service) => service !== null);
}

/**
 * The lines of one table of a plan: chains, then the rules that are always there, then those of each Service, then the
 * ones that must be last. In nat a Service's dispatch rules come before those of its own chains.
 */
export function planLines(plan: IptablesPlan, table: Table): string[] {
  const lines = plan.base.chains[table].map(chainLine);
  const services = wantedServices(plan);
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

/** One `*table … COMMIT` block. */
export function renderTransaction({ table, text, lines }: Transaction): string {
  const body = text ?? lines.join("\n");
  return `*${table}\n${body}${body === "" ? "" : "\n"}COMMIT\n`;
}

/** All blocks, in order; empty if nothing needs to be done. */
export function renderOperations(operations: Operations): string {
  return operations.transactions.map(renderTransaction).join("");
}

/** The whole plan as text, filter first. It does not contain the jumps from the kernel's own chains. */
export function renderPlan(plan: IptablesPlan): string {
  return renderOperations({
    transactions: (["filter", "nat"] as const).map((table) => ({ table, lines: planLines(plan, table) })),
  });
}

/** How many rules the operations write, less the chains they delete (the meaning of kube-proxy's `…_last` gauges). */
export function countWrittenRules(operations: Operations): Record<Table, number> {
  const counts = { filter: 0, nat: 0 };
  for (const transaction of operations.transactions) {
    counts[transaction.table] += transaction.ruleCount ?? countRules(transaction);
  }
  return counts;
}

/** The same of one transaction, by its lines. */
export function countRules({ lines }: Transaction): number {
  let count = 0;
  for (const line of lines) {
    if (line.startsWith("-A ") || line.startsWith("-I ")) count++;
    else if (line.startsWith("-X ")) count--;
  }
  return count;
}
