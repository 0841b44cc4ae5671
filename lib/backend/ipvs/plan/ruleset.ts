/**
 * The words shared by the planner, the difference, the rendering and the applier of IPVS mode: plain data and no decisions.
 *
 * One Service claims virtual servers, addresses and set entries; several Services may claim the same ones. What the
 * kernel holds is the union of all claims; of several claims on one virtual server that of an address goes before that of a node port.
 *
 * @module
 */
import type { Cidr } from "../../../model/ip.ts";
import type { LocalDetector } from "../../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { SavedSet } from "../../../netfilter/ipset.ts";
import type { JumpRule, PerTable, Table } from "../../../netfilter/iptables_jumps.ts";
import type { RealServer, SavedVirtualServer, VirtualServer } from "../../../netfilter/ipvs.ts";

/** The device that carries the addresses of Services. */
export const DEVICE = "kube-ipvs0";

/** Settings and facts of the node that decide what one family needs. */
export interface IpvsOptions {
  /** The family of all addresses in the plan. */
  readonly family: IpFamily;
  /** The mark itself, e.g. 0x4000 (not the bit number). */
  readonly masqueradeMark: number;
  /** True: every packet to a cluster IP is masqueraded. */
  readonly masqueradeAll: boolean;
  /** How packets of pods are recognised. */
  readonly detector: LocalDetector;
  /** True if iptables knows `--random-fully` (1.6.2 and newer). */
  readonly randomFully: boolean;
  /** The node's own address of this family. */
  readonly nodeIp: string;
  /** Of `nodePortIps`: the addresses that get a virtual server for each node port; sorted. */
  readonly nodePortIps: readonly string[];
  /** Addresses of this family on other devices than ours, loopback and link-local ones left out (`hostIps`). */
  readonly hostIps: readonly string[];
  /** Of virtual servers whose Service does not name one. */
  readonly scheduler: string;
  /** Schedulers that a Service may name; those of the kernel that can be loaded. Empty: any that kube-proxy knows. */
  readonly schedulers: readonly string[];
  /** Virtual servers in these networks are somebody else's. */
  readonly excludeCIDRs: readonly Cidr[];
}

/** One virtual server as a Service wants it. */
export interface WantedServer {
  /** Of `virtualServerKey`. */
  readonly key: string;
  /** The virtual server itself. */
  readonly server: VirtualServer;
  /** Keys of its real servers (`ip:port`, `[ip]:port`), sorted; each has weight 1 and is translated to. */
  readonly realServers: readonly string[];
  /** True if connections to a real server that leaves may end by themselves. */
  readonly graceful: boolean;
  /** True if its address must be on the device. */
  readonly bind: boolean;
  /** Entries that say how traffic to it is treated. */
  readonly entries: readonly Entry[];
  /** True if its address is the node's and its port a node port. */
  readonly isNodePort: boolean;
  /** A rule in KUBE-IPVS-OUT-FILTER, without `-A CHAIN `; `""` if it needs none. */
  readonly outFilter: string;
}

/** One entry of one set as its `add` line says it: name, blank, entry. */
export type Entry = string;

/** Everything one Service (all its ports of this family) claims. */
export interface ServiceClaims {
  /** Emission order. */
  readonly servers: readonly WantedServer[];
  /** Entries that belong to no one server: hairpins, node ports, health-check node ports. Emission order. */
  readonly entries: readonly Entry[];
}

/** A rule of ours that is there whatever the Services are. */
export interface BaseRule {
  /** The table of the chain. */
  readonly table: Table;
  /** The chain that the rule is in. */
  readonly chain: string;
  /** Without the leading `-A CHAIN `. */
  readonly rule: string;
  /** The rule is only written while this set has entries; `""`: always. */
  readonly needs: string;
}

/** What is in the kernel whatever the Services are. */
export interface BaseRules {
  /** The family of the rules. */
  readonly family: IpFamily;
  /** Emission order. */
  readonly chains: PerTable<readonly string[]>;
  /** Written before the rules of Services, which are the only ones in KUBE-IPVS-OUT-FILTER. */
  readonly head: PerTable<readonly BaseRule[]>;
  /** Written after them. */
  readonly tail: PerTable<readonly BaseRule[]>;
  /** In the order in which they are each inserted at the top, so the built-in chains hold them in reverse order. */
  readonly jumps: readonly JumpRule[];
}

/** What the changed Services (or all) want. */
export interface IpvsPlan {
  /** True if every Service is in `services`; a Service that is not there must then not be in the kernel. */
  readonly all: boolean;
  /** What is there whatever the Services are. */
  readonly base: BaseRules;
  /** In emission order (sorted by name); null: the Service is gone. */
  readonly services: ReadonlyMap<NamespacedName, ServiceClaims | null>;
  /** What Services ask for and do not get, in words; sorted. Without those that get everything. */
  readonly problems: ReadonlyMap<NamespacedName, readonly string[]>;
}

/** One `*table … COMMIT` block. */
export interface Transaction {
  readonly table: Table;
  /** Between `*table` and `COMMIT`, without line ends. */
  readonly lines: readonly string[];
}

/** One change of IPVS. All but `removeReal` are a line of `ipvsadm -R`. */
export type ServerChange =
  | { readonly kind: "addServer" | "updateServer" | "deleteServer"; readonly server: VirtualServer }
  | {
    /**
     * `addReal`: it may still be there, drained of new connections by an earlier `removeReal`.
     * `removeReal`: at once if nobody is connected or the protocol has no connections, else after those are gone.
     */
    readonly kind: "addReal" | "updateReal";
    readonly server: VirtualServer;
    readonly real: RealServer;
  }
  | {
    readonly kind: "removeReal";
    readonly server: VirtualServer;
    readonly real: RealServer;
    /** False: at once in any case. */
    readonly graceful: boolean;
  };

/** One program's part. Each is one start of the program; lines carry no line ends. */
export type Step =
  | { readonly program: "ipset"; readonly lines: readonly string[] }
  | { readonly program: "iptables"; readonly transactions: readonly Transaction[] }
  | { readonly program: "ipvsadm"; readonly changes: readonly ServerChange[] }
  | { readonly program: "ip"; readonly lines: readonly string[] };

/**
 * What leads from what the kernel holds to a plan: at most one step per program, in the order in which they must be
 * taken. An address is bound only after its servers are in, and where addresses only go they go first. No step means
 * that nothing needs to be done.
 */
export interface Operations {
  readonly steps: readonly Step[];
}

/** What the tools said is in the kernel, for a full sync. Only the own family counts; the rest may be there. */
export interface Observed {
  /** Null: the device is missing. */
  readonly addresses: ReadonlySet<string> | null;
  /** By `virtualServerKey`. */
  readonly virtualServers: ReadonlyMap<string, SavedVirtualServer>;
  /** By name. */
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** Of `iptables-save` of both tables; of those it cannot read, what is found by name. */
  readonly tables: IptablesRuleset;
  /** Chains of the kernel of which only our jumps are known, each once and not in their order. */
  readonly jumpsOnly?: PerTable<ReadonlySet<string>>;
  /** Tables that iptables cannot read as a whole. */
  readonly unreadable?: readonly Table[];
}
