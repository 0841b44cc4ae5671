/**
 * What kube-proxy is told of a node and its Services, as far as the layouts of this folder depend on it.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/model/objects.ts";
import type { SocketAddress } from "../lab_sockets.ts";

/** One family of the node. */
export interface LaidOutNode {
  readonly family: IpFamily;
  /** Where pods are. */
  readonly clusterCidr: string;
  /** Where cluster IPs are. */
  readonly serviceCidr: string;
  /** Its primary address. */
  readonly nodeIp: string;
  /** All addresses of its devices but loopback and link-local ones. */
  readonly hostIps: readonly string[];
}

/** One port of a Service in one family: policies Cluster, every endpoint on the node. */
export interface LaidOutPort {
  /** `namespace/name:port`. */
  readonly name: string;
  readonly protocol: "tcp" | "udp";
  readonly clusterIp: string;
  readonly port: number;
  readonly nodePort?: number;
  /** None: it refuses. */
  readonly endpoints: readonly SocketAddress[];
  /** Of session affinity by client address; without it there is none. */
  readonly affinitySeconds?: number;
  readonly loadBalancer?: {
    readonly ip: string;
    /** Who may use it; none of these networks has the node in it. */
    readonly sourceRanges: readonly string[];
  };
}

/** `ip:port`, IPv6 in brackets. */
export function addressText({ ip, port }: SocketAddress): string {
  return ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
}

/** In the order in which kube-proxy writes them: that of their texts' bytes. */
export function inOrder(endpoints: readonly SocketAddress[]): readonly SocketAddress[] {
  return endpoints.toSorted((a, b) => addressText(a) < addressText(b) ? -1 : 1);
}

/** The mark for masquerading, at its default. */
export const MARK = "0x00004000";
