/**
 * The chain of a ServicePort whose load-balancer IPs are for some sources only.
 *
 * @module
 */
import { cidrContains, type Ip, parseCidr } from "../../../model/ip.ts";
import type { ServicePort } from "../../../model/state.ts";
import type { Chain } from "../../../netfilter/nft_objects.ts";
import type { RuleWords } from "./shared_chains.ts";

/** True if only some sources may use the load-balancer IPs. Endpoints do not matter. */
export function hasFirewall(servicePort: ServicePort): boolean {
  return servicePort.loadBalancerVIPs.length > 0 && servicePort.loadBalancerSourceRanges.length > 0;
}

/**
 * Drops what comes from elsewhere than the source ranges.
 *
 * @param nodeIp the node's own address; null if it has none of this family
 * @throws {RangeError} if a range is not a CIDR
 */
export function planFirewall(
  servicePort: ServicePort,
  name: string,
  nodeIp: Ip | null,
  { ip }: RuleWords,
): Chain {
  const sources = new Set<string>();
  let containsNode = false;
  for (const range of servicePort.loadBalancerSourceRanges) {
    const cidr = parseCidr(range);
    if (cidr === null) {
      throw new RangeError(
        `Source range of Service port "${servicePort.text}" must be a CIDR: got "${range}"`,
      );
    }
    // nft prints the network of a single address as the address.
    sources.add(cidr.prefixLength === cidr.bytes.length * 8 ? range.slice(0, range.indexOf("/")) : range);
    containsNode ||= nodeIp !== null && cidrContains(cidr, nodeIp);
  }
  // A packet from the node to the load-balancer IP comes back with that IP as its source.
  if (containsNode) { for (const vip of servicePort.loadBalancerVIPs) sources.add(vip); }
  // A rule for each, and no set: nft would join and sort the ranges, and then the text compares as another.
  return { name, rules: [...[...sources].map((source) => `${ip} saddr ${source} return`), "drop"] };
}
