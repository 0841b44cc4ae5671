/**
 * What speaks of an IP family: whether a cluster counts on one that a node cannot serve.
 *
 * @module
 */
import { parseCidr, parseIp } from "./ip.ts";
import type { IpFamily, NodeObject, Service } from "./objects.ts";

/** What of a Node is of the family, in words; null if nothing is. */
export function nodeUse(node: NodeObject, family: IpFamily): string | null {
  const address = node.addresses.find((entry) => parseIp(entry.address)?.family === family);
  if (address !== undefined) return `Node ${node.name} has the address ${address.address}`;
  const network = node.podCIDRs.find((cidr) => parseCidr(cidr)?.family === family);
  return network === undefined ? null : `Node ${node.name} has the pod CIDR ${network}`;
}

/** What of a Service is of the family, in words; null if nothing is. */
export function serviceUse(service: Service, family: IpFamily): string | null {
  const ip = service.clusterIPs.find((text) => parseIp(text)?.family === family);
  return ip === undefined ? null : `Service ${service.namespace}/${service.name} has the cluster IP ${ip}`;
}
