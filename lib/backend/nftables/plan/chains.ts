/**
 * Names: the table, its maps and sets, the chains that Services share and those of one Service.
 *
 * A chain of one Service has a `/` in its name, no other has; an affinity set begins with `affinity-`.
 *
 * @module
 */
import type { IpFamily, Protocol } from "../../../model/objects.ts";
import type { Endpoint, ServicePort } from "../../../model/state.ts";
import { base32Sha256 } from "../../../netfilter/chain_hash.ts";

/** The table of each family. */
export const TABLE_NAME = "kproxy";
/** Table of a new layout, built while the old one still serves. */
export const NEXT_TABLE_NAME = "kproxy-next";
/** Version of the layout, raised whenever tables of the last release cannot be changed into ours in place. */
const LAYOUT_VERSION = 1;
/** Comment of the table, for people: kernels before 5.10 take it and forget it, without a word. */
export const TABLE_COMMENT = `kproxy layout ${LAYOUT_VERSION}`;
/** Set whose presence marks the layout: an empty one, because every kernel lists the names of sets. */
export const LAYOUT_SET = `layout-${LAYOUT_VERSION}`;

/** Keywords of nft for one family. */
export interface FamilyWords {
  /** Family of the table, and of matches such as `ip daddr`. */
  readonly ip: "ip" | "ip6";
  readonly addressType: "ipv4_addr" | "ipv6_addr";
  readonly loopback: string;
}

export const FAMILY_WORDS: Readonly<Record<IpFamily, FamilyWords>> = {
  IPv4: { ip: "ip", addressType: "ipv4_addr", loopback: "127.0.0.0/8" },
  IPv6: { ip: "ip6", addressType: "ipv6_addr", loopback: "::1" },
};

/** A protocol as nft and the names of maps and chains write it. */
export type ProtocolWord = "tcp" | "udp" | "sctp";

export const PROTOCOL_WORDS: Readonly<Record<Protocol, ProtocolWord>> = {
  TCP: "tcp",
  UDP: "udp",
  SCTP: "sctp",
};

/** Sets and maps that always exist, except those of endpoints, and counters where traffic is counted. */
export const SETS = {
  serviceIps: "service-ips",
  serviceNodePorts: "service-nodeports",
  noEndpointServices: "no-endpoint-services",
  noEndpointNodePorts: "no-endpoint-nodeports",
  firewallIps: "firewall-ips",
  clusterIps: "cluster-ips",
  nodePortIps: "nodeport-ips",
  hairpins: "hairpin-connections",
  /** Destinations with a counter: packets to endpoints, and from them. */
  serviceTrafficIn: "service-traffic-in",
  serviceTrafficOut: "service-traffic-out",
  nodePortTrafficIn: "nodeport-traffic-in",
  nodePortTrafficOut: "nodeport-traffic-out",
} as const;

/** Chains that base chains or elements jump to. */
export const CHAINS = {
  services: "services",
  masquerading: "masquerading",
  reject: "reject-chain",
  firewallCheck: "firewall-check",
  serviceEndpointsCheck: "service-endpoints-check",
  nodePortEndpointsCheck: "nodeport-endpoints-check",
  clusterIpsCheck: "cluster-ips-check",
  traffic: "traffic",
} as const;

/** Selects one of the endpoint maps, and one of the chains that choose from it. */
export interface EndpointMap {
  readonly protocol: ProtocolWord;
  /** True if it is looked up by node port, false if by address and port. */
  readonly nodePort: boolean;
  /** True if it holds the endpoints of this node only. */
  readonly local: boolean;
}

export function endpointMapName({ protocol, nodePort, local }: EndpointMap): string {
  return `${local ? "local-" : ""}${nodePort ? "nodeport-" : ""}endpoints-${protocol}`;
}

/** How far `numgen` may count, and so how many endpoints one destination may have. */
export const MAX_ENDPOINTS = 65536;

/** `nft` allows 128 bytes in the comment of an element. */
const COMMENT_BYTES = 128;
/** Chains and sets may have 255 bytes; the longest prefix takes 9. kube-proxy stays below 240. */
const BASE_NAME_LENGTH = 240;
const ELLIPSIS = "...";

/** Eight hash digits, `-` and the text, at most 240 characters; what nft would not read becomes `_`. */
export function hashedName(text: string): string {
  const name = `${base32Sha256(text, 8)}-${text.replaceAll(/[^A-Za-z0-9/._-]/g, "_")}`;
  return name.length <= BASE_NAME_LENGTH
    ? name
    : name.slice(0, BASE_NAME_LENGTH - ELLIPSIS.length) + ELLIPSIS;
}

/** The names of one ServicePort's chains; node port, addresses and port number do not enter them. */
export interface ServiceChains {
  readonly cluster: string;
  readonly local: string;
  readonly external: string;
  readonly firewall: string;
}

function servicePath({ namespacedName, protocol, portName }: ServicePort): string {
  return `${namespacedName}/${PROTOCOL_WORDS[protocol]}/${portName}`;
}

export function serviceChains(servicePort: ServicePort): ServiceChains {
  const base = hashedName(servicePath(servicePort));
  return {
    cluster: `service-${base}`,
    local: `local-${base}`,
    external: `external-${base}`,
    firewall: `firewall-${base}`,
  };
}

/** Names of the chain that DNATs to one endpoint of one ServicePort, and of the set of its affinity clients. */
export interface EndpointNames {
  readonly chain: string;
  readonly affinitySet: string;
}

export function endpointNames(servicePort: ServicePort, endpoint: Endpoint): EndpointNames {
  const ip = endpoint.ip.replaceAll(":", ".");
  const base = hashedName(`${servicePath(servicePort)}__${ip}/${endpoint.port}`);
  return { chain: `endpoint-${base}`, affinitySet: `affinity-${base}` };
}

/** A network as nft prints it: that of a single address as the address. */
export function printedNetwork(cidr: string): string {
  return cidr.replace(cidr.includes(":") ? /\/128$/ : /\/32$/, "");
}

/** True if several Services may want the same element of the set: it is there as long as one Service does. */
export function isSharedSet(name: string): boolean {
  return name === SETS.clusterIps || name === SETS.hairpins;
}

/** True if the chain belongs to one Service, by its name. */
export function isServiceChain(name: string): boolean {
  return name.includes("/");
}

/** True if the set holds clients of one endpoint, by its name. */
export function isAffinitySet(name: string): boolean {
  return name.startsWith("affinity-");
}

/** The text as a comment: cut between two characters to what nft allows, and without what would end it. */
export function elementComment(text: string): string {
  // deno-lint-ignore no-control-regex
  const plain = text.replaceAll(/["\\\x00-\x1f\x7f]/g, "?");
  return plain.slice(0, new TextEncoder().encodeInto(plain, new Uint8Array(COMMENT_BYTES)).read);
}
