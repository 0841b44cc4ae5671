/**
 * Listings of the fakes' state: the texts of `iptables-save`, `ipvsadm -Sn` and `ipset save`.
 *
 * @module
 */
import { addEntryLine, createSetLine, type SetDefinition, type SetEntry } from "../../lib/netfilter/ipset.ts";
import type { IptablesRuleset } from "../../lib/netfilter/iptables_save.ts";
import { addRealServerLine, addVirtualServerLine, type IpvsTable } from "../../lib/netfilter/ipvs.ts";

/** The text of iptables-save: all chain lines of a table, then the rules chain by chain. */
export function renderIptablesSave(ruleset: IptablesRuleset): string {
  const lines: string[] = [];
  for (const [tableName, table] of ruleset) {
    lines.push(`*${tableName}`);
    for (const [name, chain] of table) {
      lines.push(`:${name} ${chain.policy} [0:0]`);
    }
    for (const [name, chain] of table) {
      for (const rule of chain.rules) lines.push(rule === "" ? `-A ${name}` : `-A ${name} ${rule}`);
    }
    lines.push("COMMIT");
  }
  return lines.length === 0 ? "" : lines.join("\n") + "\n";
}

/** The text of `ipvsadm -Sn` for a table, which `ipvsadm -R` can load. */
export function formatIpvsTable({ virtualServers, otherLines }: IpvsTable): string {
  const lines = [...virtualServers.values()].flatMap(({ server, realServers }) => [
    addVirtualServerLine(server),
    ...[...realServers.values()].map((real) => addRealServerLine(server, real)),
  ]);
  return [...lines, ...otherLines].map((line) => `${line}\n`).join("");
}

/** Sets and their entries, as `ipset restore` reads them. */
export function formatSets(
  sets: Iterable<{ readonly definition: SetDefinition; readonly entries: Iterable<SetEntry> }>,
): string {
  const lines: string[] = [];
  for (const { definition, entries } of sets) {
    lines.push(createSetLine(definition));
    for (const entry of entries) lines.push(addEntryLine(definition.name, entry));
  }
  return lines.map((line) => `${line}\n`).join("");
}
