/**
 * How much one Service may expand to. Its rules are products: every port at every address, and every endpoint behind each of
 * those. A few hundred kilobytes of objects can ask for millions, so what they come to is counted before anything is made of it.
 *
 * @module
 */
import type { ServicePort, ServicePortKey } from "./state.ts";

/**
 * Destinations of one Service in one IP family: ports × (cluster IP, external IPs, load balancer IPs, node port). In mode iptables
 * each is a rule of a chain that packets to all Services go through. A thousand ports at ten addresses are as many.
 */
export const MAX_DESTINATIONS = 10_000;

/**
 * Entries of one Service in one IP family: each destination with each of its port's endpoints, as modes nftables and ipvs write
 * them, and each load balancer IP of each port with each source range. 5,000 endpoints of two ports at five addresses are as many;
 * a node writes them in about half a second, in which no other Service is served anew.
 */
export const MAX_ENTRIES = 50_000;

/** The endpoints that a Service's slices list. */
export interface ListedEndpoints {
  /** No more than these on all ports together. */
  readonly atMost: number;
  /** How many on each port, by its key. */
  readonly byPort: () => ReadonlyMap<ServicePortKey, number>;
}

/**
 * Why a Service is too large to be served; null: it is not.
 *
 * @param ports as the Service declares them
 */
export function sizeProblem(ports: readonly ServicePort[], listed: ListedEndpoints): string | null {
  let [destinations, firewall, largest] = [0, 0, 0];
  for (const port of ports) {
    const ofPort = destinationsOf(port);
    destinations += ofPort;
    largest = Math.max(largest, ofPort);
    firewall += port.loadBalancerVIPs.length * port.loadBalancerSourceRanges.length;
  }
  if (destinations > MAX_DESTINATIONS) {
    const what = `${leading(destinations)} destinations (ports × addresses)`;
    return `it has more than ${what}; a Service is served with at most ${MAX_DESTINATIONS}`;
  }
  let entries = destinations + firewall;
  if (entries + largest * listed.atMost <= MAX_ENTRIES) return null;
  const counts = listed.byPort();
  for (const port of ports) entries += destinationsOf(port) * (counts.get(port.key) ?? 0);
  if (entries <= MAX_ENTRIES) return null;
  const what = `${leading(entries)} entries (destinations × endpoints or source ranges)`;
  return `it has more than ${what}; a Service is served with at most ${MAX_ENTRIES}`;
}

function destinationsOf({ externalIPs, loadBalancerVIPs, nodePort }: ServicePort): number {
  return 1 + externalIPs.length + loadBalancerVIPs.length + (nodePort === 0 ? 0 : 1);
}

/** With its first digit only: what is told once is not told anew with every endpoint. */
function leading(count: number): number {
  const scale = 10 ** Math.floor(Math.log10(count - 1));
  return Math.floor((count - 1) / scale) * scale;
}
