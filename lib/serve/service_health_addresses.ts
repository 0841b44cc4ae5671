/**
 * The addresses that health check node ports are opened on.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { matchingNodeIps, nodeIps, nodePortAddresses } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";

/** Every address of the family, or these. */
export type ListenAddresses = "all" | readonly string[];

/**
 * Those of the node's addresses that serve node ports. Link-local ones are left out: a socket on one would need to name an
 * interface.
 *
 * @param interfaceIps addresses of all interfaces, both families
 * @throws {SyntaxError} if `nodePortAddresses` holds something that is no network
 */
export function nodePortListenAddresses(
  family: IpFamily,
  config: Pick<KubeProxyConfiguration, "nodePortAddresses" | "bindAddress">,
  node: NodeObject | null,
  interfaceIps: readonly string[],
): ListenAddresses {
  const addresses = nodePortAddresses(family, config.nodePortAddresses, nodeIps(node, config.bindAddress));
  if (addresses.matchAll) return "all";
  return matchingNodeIps(addresses, interfaceIps).filter((ip) => !/^fe[89ab][0-9a-f]:/.test(ip));
}
