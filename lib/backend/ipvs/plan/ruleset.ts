/**
 * Data types of the planner of IPVS mode: plain data and no decisions.
 *
 * One Service wants virtual servers, addresses and set entries; several Services may want the same ones.
 *
 * @module
 */
import type { FamilySettings } from "../../planning.ts";
import type { Cidr } from "../../../model/ip.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { JumpRule, PerTable } from "../../../netfilter/iptables_jumps.ts";
import type { VirtualServer } from "../../../netfilter/ipvs.ts";

/** The device that carries the addresses of Services. */
export const DEVICE = "kube-ipvs0";

/** Settings and facts of the node that decide what one family needs. */
export interface IpvsOptions extends Omit<FamilySettings, "nodePortAddresses"> {
  /** Result of `nodePortIps`: the addresses that get a virtual server for each node port; sorted. */
  readonly nodePortIps: readonly string[];
  /** Addresses of this family on other devices than ours, loopback and link-local ones left out (`hostIps`). */
  readonly hostIps: readonly string[];
  /** Scheduler of virtual servers whose Service does not name one. */
  readonly scheduler: string;
  /** Schedulers that a Service may name; those of the kernel that can be loaded. Empty: any that kube-proxy knows. */
  readonly schedulers: readonly string[];
  /** Virtual servers in these networks are others'. */
  readonly excludeCIDRs: readonly Cidr[];
}

/** One virtual server as a Service wants it. */
export interface WantedServer {
  /** Result of `virtualServerKey`. */
  readonly key: string;
  /** The virtual server's own parameters. */
  readonly server: VirtualServer;
  /** Keys of its real servers (`ip:port`, `[ip]:port`), sorted; each has weight 1 and is reached by NAT. */
  readonly realServers: readonly string[];
  /** True if connections to a real server that leaves may end by themselves. */
  readonly graceful: boolean;
  /** True if its address must be on the device. */
  readonly bind: boolean;
  /** Set entries that decide how traffic to it is treated. */
  readonly entries: readonly Entry[];
  /** True if its address is the node's and its port a node port. */
  readonly isNodePort: boolean;
  /** A rule in KUBE-IPVS-OUT-FILTER, without `-A CHAIN `; `""` if it needs none. */
  readonly outFilter: string;
}

/** One entry of one set as its `add` line says it: name, blank, entry. */
export type Entry = string;

/** All objects of one Service (all its ports of this family). */
export interface ServiceObjects {
  /** Virtual servers, emission order. */
  readonly servers: readonly WantedServer[];
  /** Entries that belong to no one server: hairpins, node ports, health-check node ports. Emission order. */
  readonly entries: readonly Entry[];
}

/** A rule of ours that does not depend on Services; one of KUBE-IPVS-OUT-FILTER is a placeholder for theirs. */
export interface BaseRule {
  /** The chain that the rule is in. */
  readonly chain: string;
  /** The rule without the leading `-A CHAIN `. */
  readonly rule: string;
  /** The rule is only written while this set has entries; `""`: always. */
  readonly needs: string;
}

/** Chains and rules that do not depend on Services. */
export interface BaseRules {
  /** The family of the rules. */
  readonly family: IpFamily;
  /** Own chains, emission order. */
  readonly chains: PerTable<readonly string[]>;
  /** Base rules, emission order. */
  readonly rules: PerTable<readonly BaseRule[]>;
  /** Jumps in the order of insertion, each at the top: the built-in chains hold them in reverse order. */
  readonly jumps: readonly JumpRule[];
}

/** Objects of the changed Services (or all), and base rules. */
export interface IpvsPlan {
  /** True if every Service is in `services`; a Service that is not there must then not be in the kernel. */
  readonly all: boolean;
  /** Chains and rules that do not depend on Services. */
  readonly base: BaseRules;
  /** Objects by Service, in emission order (sorted by name); null: the Service is gone. */
  readonly services: ReadonlyMap<NamespacedName, ServiceObjects | null>;
  /** Requests of Services that are not met, in words; sorted. Without Services that get everything. */
  readonly problems: ReadonlyMap<NamespacedName, readonly string[]>;
}
