/**
 * Notices that something else took away what IPVS mode needs: its rules, its sets, its servers, its addresses.
 *
 * @module
 */
import { canonicalRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import { OUT_FILTER_CHAIN } from "./base_rules.ts";
import { type IpvsTable, type RealServer, realServerKey, sameTreatment } from "../../netfilter/ipvs.ts";
import type { CommittedIpvs } from "./committed.ts";
import { setName, setNames } from "./sets.ts";
import { chainBodies } from "./table_text.ts";
import type { Table, WantedServer } from "./ruleset.ts";

const TABLES = ["nat", "filter"] as const;

/** A listing that changes nothing, and what must be in it. */
export interface RulesProbe {
  /** For iptables-restore. */
  readonly text: string;
  /** Chain, blank, canonical rule. */
  readonly wanted: readonly string[];
}

/** Asks for the jumps and the static chains; those that Services fill are left out, because they may be long. */
export function rulesProbe({ base, union }: CommittedIpvs): RulesProbe {
  const filled = (set: string): boolean => union.setSize(set) > 0;
  const wanted: string[] = [];
  const blocks = TABLES.map((table) => {
    const bodies = chainBodies(base, table, filled);
    for (const [chain, body] of bodies) {
      for (const line of body) wanted.push(`${chain} ${canonicalRuleText(line.slice(chain.length + 4))}`);
    }
    const jumps = base.jumps.filter((jump) => jump.table === table);
    for (const { chain, args } of jumps) wanted.push(`${chain} ${canonicalRuleText(args)}`);
    const chains = new Set([...jumps.map(({ chain }) => chain), ...bodies.keys()]);
    return listing(table, [...chains].filter((chain) => chain !== OUT_FILTER_CHAIN));
  });
  return { text: blocks.join(""), wanted };
}

function listing(table: Table, chains: readonly string[]): string {
  return [`*${table}`, ...chains.map((chain) => `-S ${chain}`), "COMMIT", ""].join("\n");
}

/** True if what was listed for the probe holds everything that must be in it. */
export function holdsRules(listed: string, { wanted }: RulesProbe): boolean {
  const found = new Set<string>();
  for (const line of listed.split("\n")) {
    const [, chain, rule] = /^-A (\S+) (.*)$/.exec(line) ?? [];
    if (chain !== undefined && rule !== undefined) found.add(`${chain} ${readable(rule)}`);
  }
  return wanted.every((text) => found.has(text));
}

/** A rule of others that we cannot read is not one of ours. */
function readable(rule: string): string {
  try {
    return canonicalRuleText(rule);
  } catch (error) {
    if (error instanceof SyntaxError) return "";
    throw error;
  }
}

/** True if no set is gone and none has lost entries, going by how many there are. */
export function holdsEntries(
  sizes: ReadonlyMap<string, number | null>,
  { base, union }: CommittedIpvs,
): boolean {
  return setNames(base.family).every((set) => {
    const found = sizes.get(set);
    return found !== undefined && (found === null || found >= union.setSize(set));
  });
}

/** True if every virtual server is there as it was made, with its real servers. Those on their way out do not matter. */
export function holdsServers({ virtualServers }: IpvsTable, { union }: CommittedIpvs): boolean {
  for (const wanted of union.servers()) {
    const saved = virtualServers.get(wanted.key);
    if (saved === undefined || !sameTreatment(saved.server, wanted.server)) return false;
    if (!holdsRealServers(wanted, saved.realServers)) return false;
  }
  return true;
}

/** True if this one is there (null: it is not) with its real servers; a listing does not say how it was made. */
export function holdsServer(wanted: WantedServer, found: readonly RealServer[] | null): boolean {
  return found !== null &&
    holdsRealServers(wanted, new Map(found.map((real) => [realServerKey(real), real])));
}

function holdsRealServers({ realServers }: WantedServer, found: ReadonlyMap<string, RealServer>): boolean {
  return realServers.every((key) => found.get(key)?.weight === 1);
}

/** True if the device (null: there is none) has every address. */
export function holdsAddresses(
  addresses: ReadonlySet<string> | null,
  { base, union }: CommittedIpvs,
): boolean {
  if (addresses === null) return false;
  const prefix = `${setName("KUBE-IPVS-IPS", base.family)} `;
  for (const entry of union.entries) {
    if (entry.startsWith(prefix) && !addresses.has(entry.slice(prefix.length))) return false;
  }
  return true;
}
