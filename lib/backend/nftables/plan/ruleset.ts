/**
 * The words shared by the planner, the difference and the applier of nftables mode: plain data and no decisions.
 *
 * All text is what `nft -f -` reads and, where it can be, what `nft list` prints, so that what was read back compares by
 * text.
 *
 * @module
 */
import type { LocalDetector, NodePortAddresses } from "../../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";

/** Settings and facts of the node that decide the rules of one family. */
export interface NftablesOptions {
  /** The family of all addresses in the rules. */
  readonly family: IpFamily;
  /** The mark itself, e.g. 0x4000 (not the bit number). */
  readonly masqueradeMark: number;
  /** True: every packet to a cluster IP is masqueraded. */
  readonly masqueradeAll: boolean;
  /** How packets of pods are recognised. */
  readonly detector: LocalDetector;
  /** The addresses that node ports are served on. */
  readonly nodePortAddresses: NodePortAddresses;
  /** Of `matchingNodeIps`, loopback left out; not read if `nodePortAddresses.matchAll`. */
  readonly nodePortIps: readonly string[];
  /** The node's own address of this family. */
  readonly nodeIp: string;
  /** Networks of ServiceCIDRs of this family, if known: packets to unallocated cluster IPs are dropped. */
  readonly serviceCidrs: readonly string[];
  /** False if this kernel or nft refuses comments on tables, chains, sets and maps. */
  readonly objectComments: boolean;
  /** True: packets and bytes are counted for each destination, both ways. Absent: they are not. */
  readonly trafficCounters?: boolean;
}

/** One element of a set or map. `container` and `key` name it; two of the same name are the same element. */
export interface Element {
  /** Name of the set or map. */
  readonly container: string;
  /** As nft prints it, e.g. `10.96.10.1 . tcp . 80`. */
  readonly key: string;
  /** Of a map, e.g. `goto tcp-3` or `10.244.0.11 . 8080`; `""` for a set. */
  readonly value: string;
  /** At most 128 bytes of UTF-8; compared with what this process wrote before, not with what the kernel holds. */
  readonly comment?: string;
}

/** A chain without hook, with all its rules. */
export interface Chain {
  /** Its name in the table. */
  readonly name: string;
  /** Without `add rule …`; all of the chain, in order. */
  readonly rules: readonly string[];
}

/** Clients that stick to one endpoint. */
export interface AffinitySet {
  /** Its name in the table. */
  readonly name: string;
  /** How long a client is remembered after its last new connection. */
  readonly timeoutSeconds: number;
}

/** Where the elements of one list are for one destination. */
export interface Destination {
  /** E.g. `endpoints-tcp`. */
  readonly container: string;
  /** E.g. `10.96.10.1 . 80`, or `30080` of a node port. */
  readonly prefix: string;
  /** Key of the destination's dispatch elements, e.g. `10.96.10.1 . tcp . 80`: who has those has this. */
  readonly claim: string;
}

/**
 * Endpoints that `numgen` chooses among, reached under one or several destinations. Element `prefix . index` of
 * `container` holds the endpoint in slot `index`; which endpoint has which slot is the difference's decision, so that a
 * change touches as few elements as possible.
 */
export interface EndpointList {
  /** Tells the lists of one Service apart, e.g. `ns/name:port/TCP cluster`. */
  readonly id: string;
  /** Where the endpoints are reached. */
  readonly destinations: readonly Destination[];
  /** Values such as `10.244.0.11 . 8080`, in the model's order, no two the same, at most 65536. */
  readonly endpoints: readonly string[];
}

/** Everything one Service (all its ports of this family) wants in the kernel. */
export interface ServiceRules {
  /**
   * Dispatch, no-endpoint verdicts, firewall: each one's key is the destination, which no other Service of the state has.
   */
  readonly elements: readonly Element[];
  /** Elements that several Services may want (cluster IPs, hairpin pairs): there as long as one of them does. */
  readonly sharedElements: readonly Element[];
  /** Its lists of endpoints, one for each port and traffic policy in use. */
  readonly lists: readonly EndpointList[];
  /** Chains of its own: affinity and source ranges. In an order in which each goes only to earlier ones. */
  readonly chains: readonly Chain[];
  /** Sets of clients that stick to an endpoint. */
  readonly affinitySets: readonly AffinitySet[];
  /** Names of chains shared by Services (`tcp-3`, `masq-tcp-3`, …) that its elements go to; see {@linkcode NftablesPlan}. */
  readonly usedChains: readonly string[];
}

/** A set or map that is always there. */
export interface Container {
  /** Its name in the table. */
  readonly name: string;
  /** Whether its elements have values. */
  readonly kind: "set" | "map";
  /** Between the braces, without comment, e.g. `type ipv4_addr . inet_proto . inet_service : verdict ;`. */
  readonly spec: string;
  /** `""`: none. */
  readonly comment: string;
}

/** A chain that the kernel calls. */
export interface HookedChain extends Chain {
  /** As `nft list` prints it, e.g. `type nat hook prerouting priority dstnat; policy accept;`. */
  readonly hook: string;
}

/** What is in the kernel whatever the Services are. */
export interface BaseRules {
  /** Of the table, for people: who made it, in which layout; `""` if this kernel or nft refuses comments. */
  readonly comment: string;
  /** Its sets and maps. */
  readonly containers: readonly Container[];
  /** Each goes or jumps only to earlier ones. */
  readonly chains: readonly Chain[];
  /** The chains that the kernel calls. */
  readonly hookedChains: readonly HookedChain[];
  /** E.g. the node-port addresses. */
  readonly elements: readonly Element[];
}

/** What the changed Services (or all) want. */
export interface NftablesPlan {
  /** The family of the table. */
  readonly family: IpFamily;
  /** True if every Service is in `services`; a Service that is not there must then not be in the kernel. */
  readonly all: boolean;
  /** What is there whatever the Services are. */
  readonly base: BaseRules;
  /** The shared chains that `services` use, by name; each goes only to earlier ones. */
  readonly sharedChains: ReadonlyMap<string, Chain>;
  /** In emission order: what the cluster itself needs first (`default/kubernetes`, DNS), then by name; null: gone. */
  readonly services: ReadonlyMap<NamespacedName, ServiceRules | null>;
}

/** What one Service contributes to a transaction. */
export interface ServiceOperations {
  readonly name: NamespacedName;
  /** Services that hand a destination over to this one or take it from it: their changes are in here too. */
  readonly others: readonly NamespacedName[];
  readonly deletedElements: readonly Element[];
  /** Sets that are created, or get another timeout. */
  readonly writtenSets: readonly AffinitySet[];
  /** Chains that are created or flushed and filled anew. */
  readonly writtenChains: readonly Chain[];
  readonly addedElements: readonly Element[];
  /** Flushed now; the kernel may only know later that nothing goes to them any more, so they are deleted later. */
  readonly staleChains: readonly string[];
  /** Deleted in the same transaction. */
  readonly staleSets: readonly string[];
}

/**
 * What must be written. Any cut between two Services is safe: each of them is complete or not there at all. Within one
 * transaction nft wants: `deletedElements`, sets, chains, `addedElements`, stale things, in that order.
 */
export interface Operations {
  /** Containers, base and shared chains and base elements that are new or changed: in the first transaction. */
  readonly base: {
    readonly containers: readonly Container[];
    readonly chains: readonly Chain[];
    readonly hookedChains: readonly HookedChain[];
    readonly deletedElements: readonly Element[];
    readonly addedElements: readonly Element[];
    /** Shared chains, in the order in which they must be written. */
    readonly sharedChains: readonly Chain[];
  };
  readonly services: readonly ServiceOperations[];
  /** What no Service wants (any more), found by reading: in the last transaction. */
  readonly leftover: {
    /** Chains that somebody else hooked into our table: nothing leads to them, so they go at once. */
    readonly foreignHooks: readonly string[];
    readonly deletedElements: readonly Element[];
    readonly staleChains: readonly string[];
    readonly staleSets: readonly string[];
  };
}

/** What `nft list table` said of our table. */
export interface ObservedTable {
  /** The table's comment; `""` also where the kernel forgot it. */
  readonly comment: string;
  /** Chain → its rules as printed, with their handles. */
  readonly chains: ReadonlyMap<string, readonly { readonly text: string; readonly handle: number }[]>;
  /** Hooked chain → its hook as printed. */
  readonly hooks: ReadonlyMap<string, string>;
  /** Set or map → element key → value (`""` in a set), as printed, without comments, counters and expiry. */
  readonly elements: ReadonlyMap<string, ReadonlyMap<string, string>>;
  /** Set or map → element key → comment, of those that have one. */
  readonly elementComments: ReadonlyMap<string, ReadonlyMap<string, string>>;
  /** Affinity set → its timeout in seconds; its elements are not in `elements`. */
  readonly affinitySets: ReadonlyMap<string, number>;
}
