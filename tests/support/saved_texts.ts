/**
 * What the fakes print of what they hold: the texts of `iptables-save` and `ipvsadm -Sn`.
 *
 * @module
 */
import type { IptablesRuleset } from "../../lib/netfilter/iptables_save.ts";
import { addRealServerLine, addVirtualServerLine, type IpvsTable } from "../../lib/netfilter/ipvs.ts";

/** The text of iptables-save: all chain lines of a table, then the rules chain by chain. */
export function renderIptablesSave(ruleset: IptablesRuleset): string {
  const lines: string[] = [];
  for (const [tableName, table] of ruleset) {
    lines.push(`*${tableName}`);
    for (const [name, chain] of table) {
      lines.push(`:${name} ${chain.policy} [${chain.packets}:${chain.bytes}]`);
    }
    for (const [name, chain] of table) {
      for (const rule of chain.rules) lines.push(rule === "" ? `-A ${name}` : `-A ${name} ${rule}`);
    }
    lines.push("COMMIT");
  }
  return lines.length === 0 ? "" : lines.join("\n") + "\n";
}

/** The text of `ipvsadm -Sn` of a table: what `ipvsadm -R` makes that table of. */
export function formatIpvsTable({ virtualServers, otherLines }: IpvsTable): string {
  const lines = [...virtualServers.values()].flatMap(({ server, realServers }) => [
    addVirtualServerLine(server),
    ...[...realServers.values()].map((real) => addRealServerLine(server, real)),
  ]);
  return [...lines, ...otherLines].map((line) => `${line}\n`).join("");
}
