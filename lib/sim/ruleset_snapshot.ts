/**
 * What one family of a kernel holds, of all programs: rules of iptables, tables of nftables, sets and virtual servers.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { SavedSet } from "../netfilter/ipset.ts";
import { type IptablesRuleset, parseIptablesSave, type SavedChain } from "../netfilter/iptables_save.ts";
import type { IpvsTable } from "../netfilter/ipvs.ts";
import type { ListedTable } from "../netfilter/nft_listing.ts";
import type { PortalSnapshot } from "./portals.ts";

/** The rules of one variant of iptables. */
export interface IptablesSnapshot {
  /** `""`: unknown variant. */
  readonly variant: "nft" | "legacy" | "";
  /** Tables by name, with built-in chains. */
  readonly tables: IptablesRuleset;
}

/** State of IPVS, and of the dummy device that its rules refer to. */
export interface IpvsSnapshot {
  /** Virtual servers with their real servers. */
  readonly servers: IpvsTable;
  /** Canonical addresses bound to the service proxy's dummy device. */
  readonly bound: readonly string[];
}

/** Everything in one family of a kernel that decides about a packet. */
export interface RulesetSnapshot {
  /** The IP family of all rules. */
  readonly family: IpFamily;
  /** One ruleset per variant that has rules. */
  readonly iptables: readonly IptablesSnapshot[];
  /** Tables that packets of the family pass, in the order of their creation; tables of iptables-nft are left out. */
  readonly nftables: readonly ListedTable[];
  /** ipsets of both families, by name. */
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** Null: there is no IPVS. */
  readonly ipvs: IpvsSnapshot | null;
  /** Listeners of a process in userspace mode; absent: unknown. */
  readonly portals?: PortalSnapshot;
}

/** An empty kernel: no rules, sets or virtual servers. */
export function emptySnapshot(family: IpFamily): RulesetSnapshot {
  return { family, iptables: [], nftables: [], sets: new Map(), ipvs: null };
}

const BUILTIN_CHAINS: Readonly<Record<"filter" | "nat", readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/**
 * @param restore restore text of the proxy's own chains, of tables filter and nat
 * @param jumps from built-in chains; each is inserted at the top, so packets reach the last one first
 * @param policies of table filter, by the node's own firewall. @default {the kernel's}
 */
export function kernelTables(
  restore: string,
  jumps: readonly { readonly table: string; readonly chain: string; readonly args: string }[],
  policies: Readonly<Partial<Record<"INPUT" | "FORWARD", "ACCEPT" | "DROP">>> = {},
): IptablesRuleset {
  const written = parseIptablesSave(restore);
  const policyOf = new Map<string, string>(Object.entries(policies));
  return new Map((["filter", "nat"] as const).map((table) => {
    const chains = new Map<string, SavedChain>(written.get(table));
    for (const chain of BUILTIN_CHAINS[table]) {
      const policy = table === "filter" ? policyOf.get(chain) ?? "ACCEPT" : "ACCEPT";
      const rules = jumps.filter((jump) => jump.table === table && jump.chain === chain).map(({ args }) =>
        args
      );
      chains.set(chain, { policy, rules: rules.reverse() });
    }
    return [table, chains];
  }));
}
