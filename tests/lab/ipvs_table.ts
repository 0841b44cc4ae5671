/**
 * The kernel's IPVS table with its timeouts, and servers for it, in tests inside of the user-mode Linux.
 *
 * @module
 */
import { type Exec, runOk, systemExec } from "../../lib/kernel/exec.ts";
import { Ipvsadm, type IpvsTimeouts } from "../../lib/kernel/ipvsadm.ts";
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

/** @throws {SyntaxError} if the program prints something else */
export async function ipvsTimeouts(exec: Exec = systemExec): Promise<IpvsTimeouts> {
  const text = await runOk(exec, ["ipvsadm", "-L", "--timeout"]);
  const [, tcp, tcpFin, udp] = /: (\d+) (\d+) (\d+)/.exec(text) ?? [];
  if (udp === undefined) throw new SyntaxError(`ipvsadm printed "${text.trim()}" instead of timeouts`);
  return { tcpSeconds: Number(tcp), tcpFinSeconds: Number(tcpFin), udpSeconds: Number(udp) };
}
