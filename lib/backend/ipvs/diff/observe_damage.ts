/**
 * What others did to what IPVS mode needs: compares its chains, sets, servers and addresses with what is committed. What is in our
 * chains and sets, on our device and behind our servers is ours alone; KUBE-POSTROUTING, KUBE-MARK-MASQ and KUBE-FORWARD must hold our
 * rules, beside which older kubelets write theirs.
 *
 * @module
 */
import { type Cidr, cidrContains, parseIp } from "../../../model/ip.ts";
import { canonicalRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { SavedSet } from "../../../netfilter/ipset.ts";
import {
  bodyRules,
  chainHolds,
  type Comparison,
  jumpRules,
  ListedChains,
  listingText,
} from "../../../netfilter/iptables_chains.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { type IpvsTable, type RealServer, realServerKey, sameTreatment } from "../../../netfilter/ipvs.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { CommittedIpvs } from "./committed.ts";
import { DEVICE, type WantedServer } from "../plan/ruleset.ts";
import { setName, setNames } from "../plan/sets.ts";
import { chainBodies } from "./table_text.ts";

const TABLES = ["nat", "filter"] as const;
/** Chains in which kubelets before 1.28 write, too. */
const KUBELETS_CHAINS: ReadonlySet<string> = new Set(["KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-FORWARD"]);

/** A chain and what must be in it. */
interface WantedChain {
  readonly table: Table;
  readonly chain: string;
  /** Canonical rules. */
  readonly rules: readonly string[];
  readonly comparison: Comparison;
}

/** A listing that changes nothing, and what must be in it. */
export interface RulesProbe {
  /** For iptables-restore. */
  readonly text: string;
  /** In the order in which the text asks for them: one name may be there in both tables. */
  readonly wanted: readonly WantedChain[];
}

/** Asks for the chains with our jumps and for all of ours; for those that Services fill only `withOutFilter`. */
export function rulesProbe({ base, union }: CommittedIpvs, withOutFilter: boolean): RulesProbe {
  const filled = (set: string): boolean => union.setSize(set) > 0;
  const wanted = TABLES.flatMap((table): WantedChain[] => {
    return [
      // Others put theirs between and before our jumps.
      ...[...jumpRules(base.jumps, table)].map(([chain, rules]): WantedChain => ({
        table,
        chain,
        rules,
        comparison: "among",
      })),
      ...[...bodyRules(chainBodies(base, table, filled))].map(([chain, rules]): WantedChain => ({
        table,
        chain,
        rules,
        comparison: KUBELETS_CHAINS.has(chain) ? "among" : "same",
      })),
    ];
  });
  // Table filter comes last.
  if (withOutFilter) wanted.push(outFilter(union));
  const chains = TABLES.map((table) =>
    [table, wanted.filter((one) => one.table === table).map(({ chain }) => chain)] as const
  );
  return { text: listingText(chains), wanted };
}

function outFilter(union: CommittedIpvs["union"]): WantedChain {
  return {
    table: "filter",
    chain: OUT_FILTER_CHAIN,
    rules: union.outFilters().map(canonicalRuleText),
    comparison: "sameInAnyOrder",
  };
}

/**
 * Chains that are not as they must be, with their tables.
 *
 * @param listed what iptables-restore printed of the probe: chain after chain in the order in which they were asked for
 */
export function damagedChains(listed: string, { wanted }: RulesProbe): string[] {
  const found = new ListedChains(listed);
  return wanted.filter((chain) => !chainHolds(found.next(chain.chain), chain))
    .map(({ table, chain }) => `${table} ${chain}`);
}

/** Sets that are gone or have more or fewer entries than they had, where that is known. */
export function damagedSizes(
  sizes: ReadonlyMap<string, number | null>,
  { base, union }: CommittedIpvs,
): string[] {
  return setNames(base.family).filter((set) => {
    const found = sizes.get(set);
    return found === undefined || (found !== null && found !== union.setSize(set));
  });
}

/** Sets that are gone or hold other entries than they did. */
export function damagedSets(
  saved: ReadonlyMap<string, Pick<SavedSet, "entries">>,
  { base, union }: CommittedIpvs,
): string[] {
  return setNames(base.family).filter((set) => {
    const entries = saved.get(set)?.entries;
    if (entries?.size !== union.setSize(set)) return true;
    for (const entry of entries) if (!union.has(`${set} ${entry}`)) return true;
    return false;
  });
}

/**
 * Virtual servers that are not as they were made, or not with their real servers, and others on our addresses. Real servers on their way
 * out do not matter.
 */
export function damagedServers(
  { virtualServers }: IpvsTable,
  { base, union }: CommittedIpvs,
  excludeCidrs: readonly Cidr[],
): string[] {
  const damaged: string[] = [];
  const wantedKeys = new Set<string>();
  for (const wanted of union.servers()) {
    wantedKeys.add(wanted.key);
    const saved = virtualServers.get(wanted.key);
    if (
      saved === undefined || !sameTreatment(saved.server, wanted.server) ||
      !holdsRealServers(wanted, saved.realServers)
    ) damaged.push(wanted.key);
  }
  const bound = setName("KUBE-IPVS-IPS", base.family);
  for (const [key, { server: { address } }] of virtualServers) {
    if (wantedKeys.has(key) || !union.has(`${bound} ${address}`)) continue;
    const ip = parseIp(address);
    if (ip !== null && !excludeCidrs.some((cidr) => cidrContains(cidr, ip))) damaged.push(key);
  }
  return damaged;
}

/** True if this one is there (null: it is not) with its real servers; a listing does not say how it was made. */
export function holdsServer(wanted: WantedServer, found: readonly RealServer[] | null): boolean {
  return found !== null &&
    holdsRealServers(wanted, new Map(found.map((real) => [realServerKey(real), real])));
}

function holdsRealServers({ realServers }: WantedServer, found: ReadonlyMap<string, RealServer>): boolean {
  const isAsMade = (key: string): boolean => {
    const real = found.get(key);
    return real?.weight === 1 && real.otherOptions === undefined;
  };
  if (!realServers.every(isAsMade)) return false;
  if (found.size === realServers.length) return true;
  const wanted = new Set(realServers);
  return [...found].every(([key, { weight }]) => weight === 0 || wanted.has(key));
}

/** The device, if it is gone (null), or its addresses of this family that are missing or too many. */
export function damagedAddresses(
  addresses: ReadonlySet<string> | null,
  { base, union }: CommittedIpvs,
): string[] {
  if (addresses === null) return [DEVICE];
  const prefix = `${setName("KUBE-IPVS-IPS", base.family)} `;
  const damaged: string[] = [];
  for (const entry of union.entries) {
    if (entry.startsWith(prefix) && !addresses.has(entry.slice(prefix.length))) {
      damaged.push(`${DEVICE} ${entry.slice(prefix.length)}`);
    }
  }
  for (const address of addresses) {
    const ip = parseIp(address);
    // The kernel itself gives every device that is up one of IPv6.
    if (ip?.family !== base.family || /^fe[89ab]/.test(address)) continue;
    if (!union.has(`${prefix}${address}`)) damaged.push(`${DEVICE} ${address}`);
  }
  return damaged;
}
