/**
 * Which port each portal had in a former life, read from the rules that it left: who listens there again serves at once, and the rules
 * need not change.
 *
 * @module
 */
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import { CHAINS } from "../plan/chains.ts";
import type { Doorway, PortalId } from "../plan/ruleset.ts";

/** What stands before the port where a rule leads to one. */
export const PORT_REGEXP = /(--to-ports |--to-destination \S*:)(\d+)$/;
/** Stands for a port that is not known. */
export const NO_PORT = "1";

/** Portal → its port, as the rules of nat that are there say; the first rule of each portal counts. */
export function adoptedPorts(
  doorways: readonly Doorway[],
  saved: IptablesRuleset,
): ReadonlyMap<PortalId, number> {
  const there = new Map<string, number>();
  for (const chain of CHAINS.nat) {
    for (const rule of saved.get("nat")?.get(chain)?.rules ?? []) {
      const port = Number(PORT_REGEXP.exec(rule)?.[2] ?? 0);
      const text = port === 0 ? null : readableRuleText(rule.replace(PORT_REGEXP, `$1${NO_PORT}`));
      if (text !== null) there.set(key("nat", chain, text), port);
    }
  }
  const ports = new Map<PortalId, number>();
  if (there.size === 0) return ports;
  for (const { table, chain, before, after, portal } of doorways) {
    if (ports.has(portal)) continue;
    const text = readableRuleText(`${before}${NO_PORT}${after}`);
    const port = text === null ? undefined : there.get(key(table, chain, text));
    if (port !== undefined) ports.set(portal, port);
  }
  return ports;
}

function key(table: Table, chain: string, text: string): string {
  return `${table} ${chain} ${text}`;
}
