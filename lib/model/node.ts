/**
 * What is decided from the own Node object and the node's configuration: its IPs, the addresses that node ports listen
 * on, what counts as local traffic, and whether load balancers should still use the node.
 *
 * @module
 */
import {
  type Cidr,
  cidrContains,
  hostCidr,
  type Ip,
  isLoopback,
  isUnspecified,
  parseCidr,
  parseIp,
} from "./ip.ts";
import { compareBytes } from "./names.ts";
import type { IpFamily, NodeObject } from "./objects.ts";

/** The node's own addresses, canonical. */
export interface NodeIps {
  /** The family of the node's first address. */
  readonly primaryFamily: IpFamily;
  /** Its own IPv4 address. */
  readonly IPv4: string;
  /** Its own IPv6 address. */
  readonly IPv6: string;
  /** True if no address of the primary family is known, so that a loopback address stands in for it. */
  readonly primaryIsLoopback: boolean;
  /** True if there should be a Node, and no address of it is known. */
  readonly areMissing: boolean;
}

/** The local addresses that node ports are served on, for one family. */
export interface NodePortAddresses {
  /** True for every local address; `cidrs` then holds only the zero CIDR. */
  readonly matchAll: boolean;
  /** True if a network of 127.0.0.0/8 is among them. */
  readonly containsIPv4Loopback: boolean;
  /** The networks, of one family. */
  readonly cidrs: readonly Cidr[];
}

/** How packets from pods of this node (or of the cluster) are recognised; `none`: not at all. */
export type LocalDetector =
  | { readonly kind: "none" }
  | { readonly kind: "cidr"; readonly cidr: string }
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interfacePrefix"; readonly prefix: string };

/** The configuration that a {@link LocalDetector} is chosen from. */
export interface LocalDetectorConfig {
  readonly mode: "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";
  /** Comma separated; may be empty. */
  readonly clusterCIDR: string;
  /** Pod networks of the own Node, for mode NodeCIDR. */
  readonly podCIDRs: readonly string[];
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
}

/** The chosen detector, and the reason if it is `none`. */
export interface LocalDetection {
  readonly detector: LocalDetector;
  /** `unset`: nothing was configured, which is allowed. `wrongFamily`: only networks of the other family were. */
  readonly problem: { readonly kind: "unset" | "wrongFamily"; readonly message: string } | null;
}

const ZONE_LABEL = "topology.kubernetes.io/zone";
const AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler";
const ZERO_CIDRS = { IPv4: "0.0.0.0/0", IPv6: "::/0" } as const;
const LOOPBACK_CIDRS = { IPv4: "127.0.0.0/8", IPv6: "::1/128" } as const;
const IPV4_LOOPBACK_START: Ip = { family: "IPv4", text: "127.0.0.0", bytes: [127, 0, 0, 0] };

/** Placeholder for a Node that should exist and cannot be read. */
export function unreadNode(name: string): NodeObject {
  return { kind: "Node", name, labels: {}, addresses: [], podCIDRs: [], taintKeys: [], deleting: false };
}

/** The node's zone, `""` if it has none or is not known. */
export function nodeZone(node: NodeObject | null): string {
  return node?.labels[ZONE_LABEL] ?? "";
}

/**
 * The node's own addresses, of either family: those of the Node object, and a `bindAddress` that is not unspecified.
 * Interface addresses do not count: load balancers such as kube-vip put their virtual addresses there.
 */
export function ownAddresses(node: NodeObject | null, bindAddress: string): readonly string[] {
  const bind = parseIp(bindAddress);
  const addresses = (node?.addresses ?? []).map(({ address }) => address);
  return bind === null || isUnspecified(bind) ? addresses : [...addresses, bind.text];
}

/**
 * Decides the node's IPs: internal addresses of the Node object before external ones, the first fixing the primary
 * family; a `bindAddress` that is not unspecified replaces the IP of its family and makes that family primary.
 *
 * @param node null if no Node is expected to exist
 */
export function nodeIps(node: NodeObject | null, bindAddress: string): NodeIps {
  const ips: { IPv4: Ip | null; IPv6: Ip | null } = { IPv4: null, IPv6: null };
  let primaryFamily: IpFamily | null = null;
  for (const type of ["InternalIP", "ExternalIP"]) {
    for (const entry of node?.addresses ?? []) {
      const ip = entry.type === type ? parseIp(entry.address) : null;
      if (ip === null) continue;
      primaryFamily ??= ip.family;
      ips[ip.family] ??= ip;
    }
  }
  const bind = parseIp(bindAddress);
  if (bind !== null && !isUnspecified(bind)) {
    primaryFamily = bind.family;
    ips[bind.family] = bind;
  }
  primaryFamily ??= "IPv4";
  const primary = ips[primaryFamily];
  return {
    primaryFamily,
    IPv4: ips.IPv4?.text ?? "127.0.0.1",
    IPv6: ips.IPv6?.text ?? "::1",
    primaryIsLoopback: primary === null || isLoopback(primary),
    areMissing: node !== null && ips.IPv4 === null && ips.IPv6 === null,
  };
}

/**
 * Decides which local addresses of `family` serve node ports. If no entry is of the family, all of them do, even though
 * entries of the other family were given; none if that is only because the address that `primary` stands for is not known.
 *
 * Source: kube-proxy 1.36 NewNodePortAddresses; differs: there all of them serve node ports where the Node cannot be read.
 *
 * @param configured CIDRs of either family and the words `all`, `localhost` and `primary`; null or empty for the default
 * @param ownIps what `primary` stands for; loopback addresses do not count
 * @throws {SyntaxError} if an entry is neither
 */
export function nodePortAddresses(
  family: IpFamily,
  configured: readonly string[] | null,
  ownIps?: NodeIps,
): NodePortAddresses {
  const candidates: Cidr[] = [];
  for (const entry of configured ?? []) {
    const cidr = cidrOfEntry(entry, family, ownIps);
    if (cidr?.family === family) candidates.push(cidr);
  }
  if (candidates.length === 0) {
    const awaitsPrimary = ownIps?.areMissing === true && configured?.includes("primary") === true;
    if (awaitsPrimary) return { matchAll: false, containsIPv4Loopback: false, cidrs: [] };
    candidates.push(mustParseCidr(ZERO_CIDRS[family]));
  }

  const cidrs: Cidr[] = [];
  let containsIPv4Loopback = false;
  for (const cidr of candidates) {
    if ((family === "IPv4" && cidr.bytes[0] === 127) || cidrContains(cidr, IPV4_LOOPBACK_START)) {
      containsIPv4Loopback = true;
    }
    if (cidr.prefixLength === 0) return { matchAll: true, containsIPv4Loopback, cidrs: [cidr] };
    cidrs.push(cidr);
  }
  return { matchAll: false, containsIPv4Loopback, cidrs };
}

/**
 * Yields the addresses of the host that node ports are served on: canonical, sorted by bytes of their text, each once.
 *
 * @param interfaceIps addresses of all interfaces, both families; zone ids are dropped
 */
export function matchingNodeIps(
  addresses: NodePortAddresses,
  interfaceIps: readonly string[],
): readonly string[] {
  const matching = new Set<string>();
  for (const text of interfaceIps) {
    const ip = parseIp(text.split("%", 1)[0]!);
    if (ip !== null && addresses.cidrs.some((cidr) => cidrContains(cidr, ip))) matching.add(ip.text);
  }
  return [...matching].sort(compareBytes);
}

/**
 * Chooses how local traffic of `family` is recognised. The problem `wrongFamily` is fatal on a single-stack node.
 *
 * @throws {SyntaxError} if a network does not parse
 */
export function selectLocalDetector(family: IpFamily, config: LocalDetectorConfig): LocalDetection {
  switch (config.mode) {
    case "ClusterCIDR": {
      const entries = config.clusterCIDR.split(",").map((text) => text.trim()).filter((text) => text !== "");
      return cidrDetection(family, entries, "clusterCIDR");
    }
    case "NodeCIDR":
      return cidrDetection(family, config.podCIDRs, "the node's spec.podCIDRs");
    case "BridgeInterface":
      if (config.bridgeInterface === "") return unset("detectLocal.bridgeInterface is empty");
      return { detector: { kind: "interface", name: config.bridgeInterface }, problem: null };
    case "InterfaceNamePrefix":
      if (config.interfaceNamePrefix === "") return unset("detectLocal.interfaceNamePrefix is empty");
      return { detector: { kind: "interfacePrefix", prefix: config.interfaceNamePrefix }, problem: null };
  }
}

/**
 * True if load balancers may send new traffic to the node: it is known, not being deleted and not about to be removed
 * by the cluster autoscaler.
 */
export function isNodeEligible(node: NodeObject | null): boolean {
  return node !== null && !node.deleting && !node.taintKeys.includes(AUTOSCALER_TAINT);
}

function cidrOfEntry(entry: string, family: IpFamily, ownIps: NodeIps | undefined): Cidr | null {
  switch (entry) {
    case "all":
      return mustParseCidr(ZERO_CIDRS[family]);
    case "localhost":
      return mustParseCidr(LOOPBACK_CIDRS[family]);
    case "primary": {
      const ip = parseIp(ownIps?.[family] ?? "");
      return ip === null || isLoopback(ip) ? null : hostCidr(ip);
    }
    default:
      return mustParseCidr(entry);
  }
}

function mustParseCidr(text: string): Cidr {
  const cidr = parseCidr(text);
  if (cidr === null) throw new SyntaxError(`"${text}" is not a CIDR such as 192.168.0.0/16 or fd00::/64`);
  return cidr;
}

function cidrDetection(family: IpFamily, entries: readonly string[], field: string): LocalDetection {
  const cidrs = entries.map(mustParseCidr);
  const cidr = cidrs.find((candidate) => candidate.family === family);
  if (cidr !== undefined) return { detector: { kind: "cidr", cidr: cidr.text }, problem: null };
  if (cidrs.length === 0) return unset(`${field} is empty`);
  return {
    detector: { kind: "none" },
    problem: {
      kind: "wrongFamily",
      message: `${field} has no ${family} network; local ${family} traffic is not detected`,
    },
  };
}

function unset(message: string): LocalDetection {
  return {
    detector: { kind: "none" },
    problem: { kind: "unset", message: `${message}; local traffic is not detected` },
  };
}
