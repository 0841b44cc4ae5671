/**
 * The networks that a cluster takes its cluster IPs from.
 *
 * @module
 */
import { compareBytes } from "./names.ts";
import type { ServiceCidr } from "./objects.ts";

/** The networks of all ServiceCIDRs, both families, each once, sorted: a network of several goes with the last of them. */
export function serviceNetworks(serviceCidrs: Iterable<ServiceCidr>): readonly string[] {
  const networks = new Set<string>();
  for (const { cidrs } of serviceCidrs) for (const cidr of cidrs) networks.add(cidr);
  return [...networks].sort(compareBytes);
}
