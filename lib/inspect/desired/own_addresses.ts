/**
 * The addresses of the node that rules depend on.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { isLoopback, parseIp } from "../../model/ip.ts";
import { hostIps } from "../../backend/ipvs/plan/settings.ts";
import type { DesiredInput } from "./desired.ts";

const LOOPBACK_IPS: readonly string[] = ["127.0.0.1", "::1"];

/** Both families. Where the machine is not looked at, its devices would say nothing about the node: the Node tells. */
export function ownAddresses({ machine, node }: DesiredInput, nodeIp: string): readonly string[] {
  if (machine.addresses !== null) return machine.addresses.map(({ address }) => address);
  return [...(node?.addresses ?? []).map(({ address }) => address), nodeIp, ...LOOPBACK_IPS];
}

/** Those of one family that IPVS mode takes for the node's own, sorted. */
export function ownHostIps(input: DesiredInput, family: IpFamily, nodeIp: string): readonly string[] {
  const { addresses } = input.machine;
  if (addresses !== null) return hostIps(family, addresses);
  const own = ownAddresses(input, nodeIp).map(parseIp)
    .filter((ip) => ip?.family === family && !isLoopback(ip)).map((ip) => ip?.text ?? "");
  return [...new Set(own)].sort();
}
