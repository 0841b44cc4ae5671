/**
 * Data types shared by the planner, the store and the proxier of iptables mode: plain data and no decisions.
 *
 * Rule text is what `iptables-restore` reads: tokens joined by single spaces, comments that contain blanks in double
 * quotes. It is not what `iptables-save` prints.
 *
 * @module
 */
import type { FamilySettings } from "../../planning.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { JumpRule, PerTable, Table } from "../../../netfilter/iptables_jumps.ts";

/** A rule that a Service adds to a chain shared by all Services. */
export interface DispatchRule {
  /** The table of the chain. */
  readonly table: Table;
  /** The shared chain, e.g. `KUBE-SERVICES`. */
  readonly chain: string;
  /** The rule without the leading `-A CHAIN `. */
  readonly rule: string;
}

/** All chains and rules of one Service (all its ports of this family). */
export interface ServiceRules {
  /** Rules in shared chains, emission order. */
  readonly dispatch: readonly DispatchRule[];
  /** Own chains (table nat), emission order; each has rules. */
  readonly chains: readonly string[];
  /** Full `-A CHAIN …` lines of the own chains, emission order; those of one chain need not be neighbours. */
  readonly rules: readonly string[];
  /** The same lines in one text, with line ends between them. */
  readonly ruleText: string;
  /** Number of rules of the own chains. */
  readonly ruleCount: number;
}

/** Chains and rules that do not depend on Services. */
export interface BaseRules {
  /** Chains that are written completely, emission order. `KUBE-FIREWALL` only where it is filled. */
  readonly chains: PerTable<readonly string[]>;
  /** Shared chains: those of `chains` in which Services have rules, beside base rules or alone. */
  readonly dispatch: PerTable<readonly string[]>;
  /** Chains that are made where they are missing, and are never written. */
  readonly ensured: PerTable<readonly string[]>;
  /**
   * True: Services have chains of their own, to which their rules in shared chains jump. False: they only have
   * the latter, and those in one chain of nat keep their order, because packets may meet several of them.
   */
  readonly hasServiceChains: boolean;
  /** Full `-A CHAIN …` lines written before those of the Services. */
  readonly head: PerTable<readonly string[]>;
  /** Full `-A CHAIN …` lines written after those of the Services; in nat the node-port tail of `KUBE-SERVICES`. */
  readonly tail: PerTable<readonly string[]>;
  /** Jumps in the order of insertion, each at the top: the built-in chains hold them in reverse order. */
  readonly jumps: readonly JumpRule[];
}

/** Rules of the changed Services (or all), and base rules. */
export interface IptablesPlan {
  /** True if every Service is in `services`; a Service that is not there must then not be in the kernel. */
  readonly all: boolean;
  /** Chains and rules that do not depend on Services. */
  readonly base: BaseRules;
  /** Rules by Service, in emission order (sorted by name); null: the Service is gone. */
  readonly services: ReadonlyMap<NamespacedName, ServiceRules | null>;
}

/** Settings and facts of the node that decide the rules of one family. */
export interface IptablesOptions extends FamilySettings {
  /** As configured; it only takes effect for IPv4 and where `nodePortAddresses` contains a loopback range. */
  readonly localhostNodePorts: boolean;
  /** Result of `matchingNodeIps`; not read if `nodePortAddresses.matchAll`. */
  readonly nodePortIps: readonly string[];
  /** False if `nf_conntrack_tcp_be_liberal` is set, so that no packet is dropped for being INVALID. */
  readonly dropInvalid: boolean;
  /** True if rules may add to the kernel's counters {@linkcode COUNTERS}, as kube-proxy's do since 1.32. */
  readonly nfacct: boolean;
}

/** The counters of `nfacct` that kube-proxy's rules add to; the metrics of the same packets are read from them. */
export const COUNTERS = {
  invalidDropped: "ct_state_invalid_dropped_pkts",
  localhostNodePorts: "localhost_nps_accepted_pkts",
} as const;
