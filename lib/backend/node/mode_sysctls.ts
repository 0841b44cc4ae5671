/**
 * Names of the kernel settings that modes ask for, beside the one for IPv6: one program reads all of them at the start.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";

/** 0: connection tracking calls packets INVALID that only look odd. */
export const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";
/** 1: packets with addresses of loopback may leave it. */
export const ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet";
/** 1: packets that IPVS balances are tracked. */
export const VS_CONNTRACK = "net.ipv4.vs.conntrack";
/** 1: a connection ends with its real server. */
export const EXPIRE_NODEST_CONN = "net.ipv4.vs.expire_nodest_conn";
/** 1: session affinity ends with its real server. */
export const EXPIRE_QUIESCENT_TEMPLATE = "net.ipv4.vs.expire_quiescent_template";
/** What IPVS does with a connection from a port that was used before. */
export const CONN_REUSE_MODE = "net.ipv4.vs.conn_reuse_mode";
/** 1: the node forwards packets. */
export const IP_FORWARD = "net.ipv4.ip_forward";

const OF_MODE: Readonly<Partial<Record<ProxyMode, readonly string[]>>> = {
  iptables: [BE_LIBERAL, ROUTE_LOCALNET],
  ipvs: [VS_CONNTRACK, EXPIRE_NODEST_CONN, EXPIRE_QUIESCENT_TEMPLATE, CONN_REUSE_MODE, IP_FORWARD],
};

/** Those that the modes will want to know, each once. */
export function modeSysctls(modes: readonly ProxyMode[]): readonly string[] {
  return [...new Set(modes.flatMap((mode) => OF_MODE[mode] ?? []))];
}
