/**
 * Data types of the planner of nftables mode: plain data and no decisions.
 *
 * @module
 */
import type { FamilySettings } from "../../planning.ts";
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import type { Chain, Container, Element, NftObjects } from "../../../netfilter/nft_objects.ts";

/** Settings and facts of the node that decide the rules of one family. */
export interface NftablesOptions extends FamilySettings {
  /** Result of `matchingNodeIps`, loopback left out; not read if `nodePortAddresses.matchAll`. */
  readonly nodePortIps: readonly string[];
  /** Networks of ServiceCIDRs of this family, if known: packets to unallocated cluster IPs are dropped. */
  readonly serviceCidrs: readonly string[];
  /** False if this kernel or nft refuses comments on tables, chains, sets and maps. */
  readonly objectComments: boolean;
  /** True: packets and bytes are counted for each destination, both ways. Absent: they are not. */
  readonly trafficCounters?: boolean;
}

/** Map and keys of the elements of one list for one destination. */
export interface Destination {
  /** E.g. `endpoints-tcp`. */
  readonly container: string;
  /** E.g. `10.96.10.1 . 80`, or `30080` of a node port. */
  readonly prefix: string;
}

/**
 * Endpoints that `numgen` chooses among, reached under one or several destinations. Element `prefix . index` of
 * `container` holds the endpoint in slot `index`; which endpoint has which slot depends on what is held, so that a change
 * touches as few elements as possible.
 */
export interface EndpointList {
  /** Destinations whose traffic goes to the endpoints. */
  readonly destinations: readonly Destination[];
  /** Values such as `10.244.0.11 . 8080`, in the model's order, no two the same, at most 65536. */
  readonly endpoints: readonly string[];
}

/** All objects of one Service (all its ports of this family) in the kernel. */
export interface ServiceRules {
  /**
   * Dispatch, no-endpoint verdicts, firewall: each one's key is the destination, which no other Service of the state has.
   */
  readonly elements: readonly Element[];
  /** Elements that several Services may want (cluster IPs, hairpin pairs): there as long as one Service does. */
  readonly sharedElements: readonly Element[];
  /** Its lists of endpoints, one for each port and traffic policy in use. */
  readonly lists: readonly EndpointList[];
  /** Chains of its own: affinity and source ranges. In an order in which each goes only to earlier ones. */
  readonly chains: readonly Chain[];
  /** Sets of clients with session affinity to an endpoint. */
  readonly affinitySets: readonly Container[];
}

/** Objects that do not depend on Services; base chains are the last of its chains. */
export interface BaseRules extends NftObjects {
  /** Comment of the table, for people: who made it, in which layout; `""` if this kernel or nft refuses comments. */
  readonly comment: string;
}

/** Rules of the changed Services (or all), and base rules. */
export interface NftablesPlan {
  /** The family of the table. */
  readonly family: IpFamily;
  /** True if every Service is in `services`; a Service that is not there must then not be in the kernel. */
  readonly all: boolean;
  /** Objects that do not depend on Services. */
  readonly base: BaseRules;
  /** The shared chains that `services` use, by name; each goes only to earlier ones. */
  readonly sharedChains: ReadonlyMap<string, Chain>;
  /** Rules by Service: first what the cluster itself needs (`default/kubernetes`, DNS), then by name; null: gone. */
  readonly services: ReadonlyMap<NamespacedName, ServiceRules | null>;
}
