/**
 * The Kubernetes objects as the proxy keeps them: decoded, defaulted and stripped to the fields it reads.
 * `lib/source/decode` makes them from API JSON; nothing after it looks at raw objects.
 *
 * @module
 */

export type IpFamily = "IPv4" | "IPv6";
/** Both. */
export const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
export type Protocol = "TCP" | "UDP" | "SCTP";
export type TrafficPolicy = "Cluster" | "Local";

/** `namespace/name`. */
export type NamespacedName = string;

/** One entry of `spec.ports`. */
export interface ServicePortSpec {
  /** `""` for an unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** 0 if there is none. */
  readonly nodePort: number;
}

/** One entry of `status.loadBalancer.ingress` that has an IP. */
export interface LoadBalancerIngress {
  readonly ip: string;
  /** `VIP` if absent in the API object; any other text means "not a VIP". */
  readonly ipMode: string;
}

/** A v1 Service. Lists keep the API's order; addresses and CIDRs are as written there. */
export interface Service {
  readonly kind: "Service";
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Seconds since the epoch, of `metadata.creationTimestamp`; null if absent or unparsable, as in most manifests. */
  readonly createdAtSeconds: number | null;
  readonly type: "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName";
  /** `""`, `"None"` or an address. */
  readonly clusterIP: string;
  readonly clusterIPs: readonly string[];
  readonly ipFamilies: readonly IpFamily[];
  readonly ports: readonly ServicePortSpec[];
  readonly externalIPs: readonly string[];
  readonly loadBalancerSourceRanges: readonly string[];
  readonly loadBalancerIngress: readonly LoadBalancerIngress[];
  readonly sessionAffinity: "None" | "ClientIP";
  /** Seconds; 10800 if the object does not say. */
  readonly affinityTimeoutSeconds: number;
  readonly externalTrafficPolicy: TrafficPolicy;
  readonly internalTrafficPolicy: TrafficPolicy;
  /** 0 if there is none. */
  readonly healthCheckNodePort: number;
  /** The annotations that the proxy reads (`kproxy.io/…`); absent if there are none. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** One entry of an EndpointSlice's `endpoints`; conditions carry the proxy's defaults for absent values. */
export interface SliceEndpoint {
  /** Only the first is used. */
  readonly addresses: readonly string[];
  /** `""` if absent. */
  readonly nodeName: string;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly zoneHints: readonly string[];
  readonly nodeHints: readonly string[];
}

/** One entry of an EndpointSlice's `ports`; null stands for absent. */
export interface SlicePort {
  readonly name: string | null;
  readonly port: number | null;
  readonly protocol: Protocol;
}

/** A discovery.k8s.io/v1 EndpointSlice, or one family of a v1 Endpoints object. */
export interface EndpointSlice {
  readonly kind: "EndpointSlice";
  readonly namespace: string;
  /** Unique in the namespace. Slices made from v1 Endpoints are named `endpoints/<name>/<family>`, which no real slice can be. */
  readonly name: string;
  readonly addressType: string;
  /** Value of the label `kubernetes.io/service-name`; `""` if absent. */
  readonly serviceName: string;
  readonly ports: readonly SlicePort[];
  readonly endpoints: readonly SliceEndpoint[];
  /** Milliseconds since the epoch, of annotation `endpoints.kubernetes.io/last-change-trigger-time`; null if absent or unparsable. */
  readonly lastChangeTriggerTimeMs: number | null;
}

/** A v1 Node. */
export interface NodeObject {
  readonly kind: "Node";
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly podCIDRs: readonly string[];
  /** In API order. */
  readonly addresses: readonly { readonly type: string; readonly address: string }[];
  readonly taintKeys: readonly string[];
  /** True if `metadata.deletionTimestamp` is set. */
  readonly deleting: boolean;
}

/** A networking.k8s.io/v1 ServiceCIDR: networks that cluster IPs are taken from. */
export interface ServiceCidr {
  readonly kind: "ServiceCIDR";
  readonly name: string;
  /** Canonical, none of them all addresses. */
  readonly cidrs: readonly string[];
}

export type ApiObject = Service | EndpointSlice | NodeObject | ServiceCidr;
