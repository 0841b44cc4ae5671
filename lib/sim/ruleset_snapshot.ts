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

/** The rules that one variant of iptables has written. */
export interface IptablesSnapshot {
  /** `""`: unknown. */
  readonly variant: "nft" | "legacy" | "";
  /** Built-in chains included. */
  readonly tables: IptablesRuleset;
}

/** What IPVS has, and what rules about it look into. */
export interface IpvsSnapshot {
  /** Virtual servers with their real servers. */
  readonly servers: IpvsTable;
  /** Addresses on the device of the service proxy, canonical. */
  readonly bound: readonly string[];
}

/** Everything in one family of a kernel that decides about a packet. */
export interface RulesetSnapshot {
  /** The one IP family. */
  readonly family: IpFamily;
  /** Of every variant that has some. */
  readonly iptables: readonly IptablesSnapshot[];
  /** Those that packets of the family meet, in the order in which they were made; those that iptables keeps its rules in are left out. */
  readonly nftables: readonly ListedTable[];
  /** By name, both families. */
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** Null: there is no IPVS. */
  readonly ipvs: IpvsSnapshot | null;
  /** What a process of userspace mode listens on; absent: nothing is known of it. */
  readonly portals?: PortalSnapshot;
}

/** A kernel that holds nothing. */
export function emptySnapshot(family: IpFamily): RulesetSnapshot {
  return { family, iptables: [], nftables: [], sets: new Map(), ipvs: null };
}

const BUILTIN_CHAINS: Readonly<Record<"filter" | "nat", readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/**
 * @param restore text of own chains, of tables filter and nat
 * @param jumps from built-in chains; each is inserted at the top, so the last one is met first
 * @param policies of table filter, of the node's own firewall. @default {the kernel's}
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
