/**
 * The Kubernetes objects as the proxy keeps them: decoded, defaulted and stripped to the fields it reads.
 * `lib/source/decode` makes them from API JSON; nothing after it looks at raw objects.
 *
 * @module
 */

export type IpFamily = "IPv4" | "IPv6";
/** Both IP families. */
export const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
/** The protocols that a Service port may have. */
export type Protocol = "TCP" | "UDP" | "SCTP";
/** Whether traffic may go to endpoints of any node, or of this one only. */
export type TrafficPolicy = "Cluster" | "Local";

/** `namespace/name`. */
export type NamespacedName = string;

/** One entry of `spec.ports`. */
export interface ServicePortSpec {
  /** `""` for an unnamed port. */
  readonly name: string;
  /** TCP where the object names none. */
  readonly protocol: Protocol;
  /** The port at the Service's addresses, 1 to 65535. */
  readonly port: number;
  /** 0 if there is none. */
  readonly nodePort: number;
}

/** One entry of `status.loadBalancer.ingress` that has an IP. */
export interface LoadBalancerIngress {
  /** The address that clients of the load balancer use. */
  readonly ip: string;
  /** `VIP` if absent in the API object; any other text means "not a VIP". */
  readonly ipMode: string;
}

/** A v1 Service. Lists keep the API's order; addresses and CIDRs are as written there. */
export interface Service {
  /** Discriminator of {@linkcode ApiObject}. */
  readonly kind: "Service";
  /** Its namespace. */
  readonly namespace: string;
  /** Its name, unique in the namespace. */
  readonly name: string;
  /** `metadata.uid`: differs between an object and a later one of the same name. */
  readonly uid: string;
  /** Seconds since the epoch, of `metadata.creationTimestamp`; null if absent or unparsable, as in most manifests. */
  readonly createdAtSeconds: number | null;
  /** Type of the Service; `ExternalName` gets no rules. */
  readonly type: "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName";
  /** `""`, `"None"` or an address. */
  readonly clusterIP: string;
  /** Its virtual addresses, the first one of its primary family; `None` for a headless Service. */
  readonly clusterIPs: readonly string[];
  /** The families of its cluster IPs, in their order. */
  readonly ipFamilies: readonly IpFamily[];
  /** Its ports, in API order. */
  readonly ports: readonly ServicePortSpec[];
  /** Addresses beside the cluster IPs that are served for it. */
  readonly externalIPs: readonly string[];
  /** Networks that may use its load balancer; empty: all. */
  readonly loadBalancerSourceRanges: readonly string[];
  /** Addresses that the load balancer's controller has published. */
  readonly loadBalancerIngress: readonly LoadBalancerIngress[];
  /** Session affinity: `ClientIP` keeps a client at one endpoint. */
  readonly sessionAffinity: "None" | "ClientIP";
  /** Seconds; 10800 if the object does not say. */
  readonly affinityTimeoutSeconds: number;
  /** Endpoints for traffic from outside of the cluster: of all nodes, or of this one. */
  readonly externalTrafficPolicy: TrafficPolicy;
  /** Endpoints for traffic to the cluster IP: of all nodes, or of this one. */
  readonly internalTrafficPolicy: TrafficPolicy;
  /** 0 if there is none. */
  readonly healthCheckNodePort: number;
  /** The annotations that the proxy reads (`kproxy.io/…`); absent if there are none. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** One entry of an EndpointSlice's `endpoints`; conditions carry the proxy's defaults for absent values. */
export interface SliceEndpoint {
  /** The first of its addresses, the only one that is used, as written; `""` if it has none. */
  readonly address: string;
  /** `""` if absent. */
  readonly nodeName: string;
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

/** One entry of an EndpointSlice's `ports`; null stands for absent. */
export interface SlicePort {
  /** Matches the name of the Service's port. */
  readonly name: string | null;
  /** The port at the endpoints. */
  readonly port: number | null;
  /** TCP where the object names none. */
  readonly protocol: Protocol;
}

/** A discovery.k8s.io/v1 EndpointSlice, or one family of a v1 Endpoints object. */
export interface EndpointSlice {
  /** Discriminator of {@linkcode ApiObject}. */
  readonly kind: "EndpointSlice";
  /** Its namespace, and its Service's. */
  readonly namespace: string;
  /** Unique in the namespace. Slices made from v1 Endpoints are named `endpoints/<name>/<family>`, which no real slice can be. */
  readonly name: string;
  /** `IPv4`, `IPv6` or `FQDN`; slices of other types are of no use to a proxy. */
  readonly addressType: string;
  /** Value of the label `kubernetes.io/service-name`; `""` if absent. */
  readonly serviceName: string;
  /** The ports that all of its endpoints have. */
  readonly ports: readonly SlicePort[];
  /** Its endpoints, in API order. */
  readonly endpoints: readonly SliceEndpoint[];
  /** Milliseconds since the epoch, of annotation `endpoints.kubernetes.io/last-change-trigger-time`; null if absent or unparsable. */
  readonly lastChangeTriggerTimeMs: number | null;
}

/** A v1 Node. */
export interface NodeObject {
  /** Discriminator of {@linkcode ApiObject}. */
  readonly kind: "Node";
  /** Its name; endpoints with this `nodeName` are local. */
  readonly name: string;
  /** All labels; the zone is one of them. */
  readonly labels: Readonly<Record<string, string>>;
  /** Networks of its pods, one per family. */
  readonly podCIDRs: readonly string[];
  /** In API order. */
  readonly addresses: readonly { readonly type: string; readonly address: string }[];
  /** Keys of its taints. */
  readonly taintKeys: readonly string[];
  /** True if `metadata.deletionTimestamp` is set. */
  readonly deleting: boolean;
}

/** A networking.k8s.io/v1 ServiceCIDR: networks that cluster IPs are taken from. */
export interface ServiceCidr {
  /** Discriminator of {@linkcode ApiObject}. */
  readonly kind: "ServiceCIDR";
  /** Name of the ServiceCIDR. */
  readonly name: string;
  /** Canonical, none of them all addresses. */
  readonly cidrs: readonly string[];
}

/** Every object that a proxy reads, in its decoded form; they differ in `kind`. */
export type ApiObject = Service | EndpointSlice | NodeObject | ServiceCidr;
