/**
 * How much one Service may expand to. Its rules are products: every port at every address, and every endpoint behind each of
 * those. A few hundred kilobytes of objects can ask for millions, so what they come to is counted before anything is made of it.
 *
 * @module
 */
import type { ServicePort, ServicePortKey } from "./state.ts";

/**
 * Destinations of one Service in one IP family: ports × (cluster IP, external IPs, load balancer IPs, node port). In mode iptables
 * each is a rule in a chain that the packets to all Services go through. 1,000 ports at ten addresses are as many.
 */
export const MAX_DESTINATIONS = 10_000;

/**
 * Endpoints of one Service in one IP family, each as often as a slice lists it for one of the Service's ports. In mode iptables each
 * is a chain with a hashed name. 5,000 endpoints of five ports are as many, a hundred times what a Service usually has.
 */
export const MAX_ENDPOINTS = 25_000;

/**
 * Entries of one Service in one IP family: each destination with each endpoint of its port, as modes nftables and ipvs write them, and
 * each load balancer IP of each port with each source range. 5,000 endpoints of two ports at five addresses are as many. An edit of
 * another Service waits while they are written, which with twice as many would be for seconds.
 */
export const MAX_ENTRIES = 50_000;

/**
 * Reason why a Service is too large to be served; null if it is not.
 *
 * @param ports as the Service declares them
 * @param listed number of endpoints that its slices list on each port
 */
export function sizeProblem(
  ports: readonly ServicePort[],
  listed: ReadonlyMap<ServicePortKey, number>,
): string | null {
  let [destinations, endpoints, entries] = [0, 0, 0];
  for (const port of ports) {
    const ofPort = destinationsOf(port);
    const count = listed.get(port.key) ?? 0;
    destinations += ofPort;
    endpoints += count;
    entries += ofPort * (1 + count) + port.loadBalancerVIPs.length * port.loadBalancerSourceRanges.length;
  }
  if (destinations > MAX_DESTINATIONS) return tooMany(destinations, "ports × addresses", MAX_DESTINATIONS);
  if (endpoints > MAX_ENDPOINTS) return tooMany(endpoints, "ports × endpoints", MAX_ENDPOINTS);
  if (entries <= MAX_ENTRIES) return null;
  return tooMany(entries, "ports × addresses × endpoints, or source ranges", MAX_ENTRIES);
}

/** Message with the first digit only, so that it is not logged again with every endpoint. */
function tooMany(count: number, what: string, most: number): string {
  const scale = 10 ** Math.floor(Math.log10(count));
  return `it is too large: ${Math.floor(count / scale) * scale} or more (${what}), where ${most} are served`;
}

function destinationsOf({ externalIPs, loadBalancerVIPs, nodePort }: ServicePort): number {
  return 1 + externalIPs.length + loadBalancerVIPs.length + (nodePort === 0 ? 0 : 1);
}
