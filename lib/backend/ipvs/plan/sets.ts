/**
 * The sets of IPVS mode: names, types and comments, as kube-proxy has them.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import {
  DEFAULT_MAX_ELEMENTS,
  MAX_SET_NAME_LENGTH,
  SET_TYPES,
  type SetDefinition,
  type SetType,
} from "../../../netfilter/ipset.ts";

/** One set, under its IPv4 name. */
interface SetSpec {
  readonly type: SetType;
  /** Comment of rules that use the set. */
  readonly comment: string;
}

const MASQUERADE = "for masquerade purpose";
const LOCAL = "with externalTrafficPolicy=local";

/** In the order in which they are created. */
const SPECS = {
  "KUBE-CLUSTER-IP": {
    type: "hash:ip,port",
    comment: `Kubernetes service cluster ip + port ${MASQUERADE}`,
  },
  "KUBE-LOOP-BACK": {
    type: "hash:ip,port,ip",
    comment: "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
  },
  "KUBE-EXTERNAL-IP": {
    type: "hash:ip,port",
    comment: "Kubernetes service external ip + port for masquerade and filter purpose",
  },
  "KUBE-EXTERNAL-IP-LOCAL": {
    type: "hash:ip,port",
    comment: `Kubernetes service external ip + port ${LOCAL}`,
  },
  "KUBE-LOAD-BALANCER": { type: "hash:ip,port", comment: "Kubernetes service lb portal" },
  "KUBE-LOAD-BALANCER-LOCAL": {
    type: "hash:ip,port",
    comment: `Kubernetes service load balancer ip + port ${LOCAL}`,
  },
  "KUBE-LOAD-BALANCER-FW": {
    type: "hash:ip,port",
    comment: "Kubernetes service load balancer ip + port for load balancer with sourceRange",
  },
  "KUBE-LOAD-BALANCER-SOURCE-IP": {
    type: "hash:ip,port,ip",
    comment: "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
  },
  "KUBE-LOAD-BALANCER-SOURCE-CIDR": {
    type: "hash:ip,port,net",
    comment: "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
  },
  "KUBE-NODE-PORT-TCP": { type: "bitmap:port", comment: `Kubernetes nodeport TCP port ${MASQUERADE}` },
  "KUBE-NODE-PORT-LOCAL-TCP": { type: "bitmap:port", comment: `Kubernetes nodeport TCP port ${LOCAL}` },
  "KUBE-NODE-PORT-UDP": { type: "bitmap:port", comment: `Kubernetes nodeport UDP port ${MASQUERADE}` },
  "KUBE-NODE-PORT-LOCAL-UDP": { type: "bitmap:port", comment: `Kubernetes nodeport UDP port ${LOCAL}` },
  "KUBE-NODE-PORT-SCTP-HASH": {
    type: "hash:ip,port",
    comment: `Kubernetes nodeport SCTP port ${MASQUERADE} with type 'hash ip:port'`,
  },
  "KUBE-NODE-PORT-LOCAL-SCTP-HASH": {
    type: "hash:ip,port",
    comment: `Kubernetes nodeport SCTP port ${LOCAL} with type 'hash ip:port'`,
  },
  "KUBE-HEALTH-CHECK-NODE-PORT": { type: "bitmap:port", comment: "Kubernetes health check node port" },
  "KUBE-IPVS-IPS": { type: "hash:ip", comment: "Addresses on the ipvs interface" },
} as const satisfies Readonly<Record<string, SetSpec>>;

/** A set, by its IPv4 name. */
export type SetKind = keyof typeof SPECS;

/** All sets, in the order in which they are created. */
export const SET_KINDS = Object.keys(SPECS) as readonly SetKind[];

/** The name of a family's set; those of IPv6 carry a mark and are cut to what ipset takes. */
export function setName(kind: SetKind, family: IpFamily): string {
  return family === "IPv4" ? kind : kind.replace("KUBE-", "KUBE-6-").slice(0, MAX_SET_NAME_LENGTH);
}

/** The names of one family's sets. */
export function setNames(family: IpFamily): readonly string[] {
  return SET_KINDS.map((kind) => setName(kind, family));
}

/** Comment of rules that use the set. */
export function setComment(kind: SetKind): string {
  return SPECS[kind].comment;
}

/** The set that takes the place of one that became too small, while it is filled. Not there otherwise. */
export function growingSetName(family: IpFamily): string {
  return family === "IPv4" ? "KPROXY-GROWING" : "KPROXY-6-GROWING";
}

/** Capacity of a set for that many entries: kube-proxy's, or if that is too small the next power of two. */
export function capacityFor(entries: number): number {
  let capacity = DEFAULT_MAX_ELEMENTS;
  while (capacity < entries) capacity *= 2;
  return capacity;
}

/** Definition for creating a family's set. */
export function setDefinition(
  kind: SetKind,
  family: IpFamily,
  maxElements: number = DEFAULT_MAX_ELEMENTS,
): SetDefinition {
  return { name: setName(kind, family), type: SPECS[kind].type, family, maxElements };
}

/** Comment of the jumps to KUBE-PROXY-FIREWALL; iptables mode, which shares that chain, writes another one. */
export const FIREWALL_JUMP_COMMENT = "kube-proxy firewall rules";

/** Temporary chain of the preflight, to try what rules can use. */
export const PROBE_CHAIN = "KPROXY-PROBE";

/** Temporary set of the preflight, to try its type. */
export function probeSetName(type: SetType, family: IpFamily): string {
  return `KPROXY-PROBE-${family === "IPv4" ? "4" : "6"}-${SET_TYPES.indexOf(type)}`;
}
