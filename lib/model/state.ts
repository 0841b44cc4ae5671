/**
 * What the planners read: the state of one IP family, after all events that were checked out for this sync.
 *
 * The maps are views: the change tracker owns and updates them in place, because copying 10,000 entries for one
 * changed endpoint would cost more than planning it. A planner must not keep them across calls.
 *
 * @module
 */
import type { IpvsAnnotations } from "./ipvs_annotations.ts";
import type { IpFamily, NamespacedName, Protocol } from "./objects.ts";

/** `ns/name:port` or `ns/name`, then `/protocol` (protocol is part of the key, never of the text). */
export type ServicePortKey = string;

/** One port of one Service in one family. */
export interface ServicePort {
  /** Its key in {@linkcode ProxyState}. */
  readonly key: ServicePortKey;
  /** Its Service. */
  readonly namespacedName: NamespacedName;
  /** When its Service was created, in seconds since the epoch; null if unknown. */
  readonly createdAtSeconds: number | null;
  /** `ns/name:port`, or `ns/name` for an unnamed port: for comments, logs and chain hashes. */
  readonly text: string;
  /** `""` for an unnamed port. */
  readonly portName: string;
  /** Transport protocol. */
  readonly protocol: Protocol;
  /** Canonical address of this family. */
  readonly clusterIP: string;
  /** The port at the cluster IP. */
  readonly port: number;
  /** 0 if there is none. */
  readonly nodePort: number;
  /** Canonical addresses of this family. */
  readonly externalIPs: readonly string[];
  /** Canonical addresses of the load balancer that packets still have when they reach the node. */
  readonly loadBalancerVIPs: readonly string[];
  /** Canonical network texts of this family, API order. Empty means no restriction. */
  readonly loadBalancerSourceRanges: readonly string[];
  /** Seconds of ClientIP affinity; 0 without affinity. */
  readonly stickyMaxAgeSeconds: number;
  /** True: traffic from outside of the cluster gets endpoints of this node only. */
  readonly externalPolicyLocal: boolean;
  /** True: traffic to the cluster IP gets endpoints of this node only. */
  readonly internalPolicyLocal: boolean;
  /** 0 if there is none. */
  readonly healthCheckNodePort: number;
  /** Options for mode ipvs, from annotations. */
  readonly ipvs: IpvsAnnotations;
}

/** One endpoint of one ServicePort. */
export interface Endpoint {
  /** `ip:port` or `[ip]:port`: identity, order and hash input. */
  readonly key: string;
  /** Canonical address, without brackets. */
  readonly ip: string;
  /** The port it listens on. */
  readonly port: number;
  /** True if it is on this node. */
  readonly isLocal: boolean;
  /** Takes new connections. */
  readonly ready: boolean;
  /** Answers, although it may be terminating. */
  readonly serving: boolean;
  /** Its pod is shutting down. */
  readonly terminating: boolean;
  /** Zones whose clients should use it; empty: no hint. */
  readonly zoneHints: readonly string[];
  /** Nodes whose clients should use it; empty: no hint. */
  readonly nodeHints: readonly string[];
}

/** Facts about the own node that the planners need. */
export interface NodeFacts {
  /** The Node's name; endpoints with this `nodeName` are local. */
  readonly name: string;
  /** Value of label `topology.kubernetes.io/zone`; `""` if absent. */
  readonly zone: string;
}

/** All Services and endpoints of one IP family. */
export interface ProxyState {
  /** The family that all addresses in it are of. */
  readonly family: IpFamily;
  /** The node that the rules are for. */
  readonly node: NodeFacts;
  /**
   * Service → its ports of this family, in spec order; Services without any are absent. Destinations that another Service
   * owns (`destination_claims.ts`) are left out, so no two ports here have the same one.
   */
  readonly services: ReadonlyMap<NamespacedName, readonly ServicePort[]>;
  /** Service → key of one of its ports → endpoints sorted by key; ports without endpoints are absent. */
  readonly endpoints: ReadonlyMap<NamespacedName, ReadonlyMap<ServicePortKey, readonly Endpoint[]>>;
  /** Sum over all ServicePorts of this family of their endpoints, whatever their readiness (large-cluster mode). */
  readonly endpointCount: number;
  /** Services that are left out because they would expand to too much (`service_size.ts`) → reason; nearly always none. */
  readonly tooLarge: ReadonlyMap<NamespacedName, string>;
}

/** Services that a sync must plan again: all of them, or those named. A named one may be gone from the state. */
export type Changed = "all" | ReadonlySet<NamespacedName>;
