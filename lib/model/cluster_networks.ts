/**
 * The networks of a whole cluster: those of its Services, and those that its Pods are likely to be in, by those of its Nodes.
 *
 * @module
 */
import { type Cidr, parseCidr, parseIp } from "./ip.ts";
import { compareBytes } from "./names.ts";
import { FAMILIES, type IpFamily, type ServiceCidr } from "./objects.ts";

/** Networks of all ServiceCIDRs, both families, each once, sorted; one listed twice stays until the last of these is gone. */
export function serviceNetworks(serviceCidrs: Iterable<ServiceCidr>): readonly string[] {
  const networks = new Set<string>();
  for (const { cidrs } of serviceCidrs) for (const cidr of cidrs) networks.add(cidr);
  return [...networks].sort(compareBytes);
}

/**
 * The likely value of `clusterCIDR`, one network for each family that there is, e.g. `10.244.0.0/16` of `10.244.3.0/24`: the smallest
 * one at a boundary of bytes that holds all of them, and has room for more. A guess; what cannot be read is left out.
 *
 * @param podCIDRs of one Node or of all
 */
export function likelyClusterCidrs(podCIDRs: readonly string[]): ReadonlyMap<IpFamily, string> {
  const networks = podCIDRs.map(parseCidr).filter((cidr) => cidr !== null);
  const likely = new Map<IpFamily, string>();
  for (const family of FAMILIES) {
    const network = holderOf(networks.filter((cidr) => cidr.family === family));
    if (network !== null) likely.set(family, network);
  }
  return likely;
}

/** Wider networks are rarely the Pods' alone: the result is as narrow as it can be. */
const ROUNDED_FROM = { IPv4: 16, IPv6: 48 } as const;

function holderOf([first, ...others]: readonly Cidr[]): string | null {
  if (first === undefined) return null;
  let length = Math.max(first.prefixLength - 1, 0);
  for (const other of others) length = Math.min(length, other.prefixLength - 1, sharedBits(first, other));
  const whole = length < ROUNDED_FROM[first.family] ? length : length - length % 8;
  const address = parseIp(first.text.slice(0, first.text.indexOf("/")));
  if (address === null || whole === 0) return null;
  return parseCidr(`${address.text}/${whole}`)?.text ?? null;
}

function sharedBits(left: Cidr, right: Cidr): number {
  const index = left.bytes.findIndex((byte, at) => byte !== right.bytes[at]);
  if (index < 0) return left.bytes.length * 8;
  return index * 8 + Math.clz32((left.bytes[index] ?? 0) ^ (right.bytes[index] ?? 0)) - 24;
}
