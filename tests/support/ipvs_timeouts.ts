/**
 * The idle times of IPVS' connections, read from the kernel.
 *
 * @module
 */
import { type Exec, runOk, systemExec } from "../../lib/kernel/exec.ts";
import type { IpvsTimeouts } from "../../lib/kernel/ipvsadm.ts";

/** @throws {SyntaxError} if the program prints something else */
export async function ipvsTimeouts(exec: Exec = systemExec): Promise<IpvsTimeouts> {
  const text = await runOk(exec, ["ipvsadm", "-L", "--timeout"]);
  const [, tcp, tcpFin, udp] = /: (\d+) (\d+) (\d+)/.exec(text) ?? [];
  if (udp === undefined) throw new SyntaxError(`ipvsadm printed "${text.trim()}" instead of timeouts`);
  return { tcpSeconds: Number(tcp), tcpFinSeconds: Number(tcpFin), udpSeconds: Number(udp) };
}
