/**
 * The kernel's IPVS table, and servers for it, in tests inside of the user-mode Linux.
 *
 * @module
 */
import { systemExec } from "../../lib/kernel/exec.ts";
import { Ipvsadm } from "../../lib/kernel/ipvsadm.ts";
import type { RealServer, VirtualServer } from "../../lib/netfilter/ipvs.ts";

export const DEVICE = "kube-ipvs0";
export const ipvs = new Ipvsadm(systemExec);

/** A virtual server: TCP, `rr`, no flags, unless the rest says otherwise. */
export function server(address: string, port: number, rest: Partial<VirtualServer> = {}): VirtualServer {
  return { address, protocol: "TCP", port, scheduler: "rr", flags: [], timeoutSeconds: 0, ...rest };
}

/** A real server behind one. */
export function real(address: string, port: number, weight = 1): RealServer {
  return { address, port, weight };
}
