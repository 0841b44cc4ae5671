/**
 * What one family of a kernel holds, whoever wrote it: rules of iptables, tables of nftables, sets and virtual servers.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import type { SavedSet } from "../../netfilter/ipset.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { IpvsTable } from "../../netfilter/ipvs.ts";
import type { NftTable } from "../../netfilter/nft_tables.ts";
import type { HeldPortals } from "./held_portals.ts";

/** The rules that one variant of iptables has written. */
export interface HeldIptables {
  /** `""`: nobody says which. */
  readonly variant: "nft" | "legacy" | "";
  /** Built-in chains included. */
  readonly tables: IptablesRuleset;
}

/** What IPVS has, and what rules about it look into. */
export interface HeldIpvs {
  readonly servers: IpvsTable;
  /** Addresses on the device of the service proxy, canonical. */
  readonly bound: readonly string[];
}

/** Everything in one family of a kernel that decides about a packet. */
export interface HeldRules {
  readonly family: IpFamily;
  /** Of every variant that has some. */
  readonly iptables: readonly HeldIptables[];
  /** In the order in which they were made; those that iptables keeps its rules in are left out. */
  readonly nftables: readonly NftTable[];
  /** By name, both families. */
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** Null: there is no IPVS. */
  readonly ipvs: HeldIpvs | null;
  /** What a process of userspace mode listens on; absent: nothing is known of it. */
  readonly portals?: HeldPortals;
}

/** A kernel that holds nothing. */
export function nothingHeld(family: IpFamily): HeldRules {
  return { family, iptables: [], nftables: [], sets: new Map(), ipvs: null };
}
