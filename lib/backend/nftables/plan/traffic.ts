/**
 * From the counters of destinations to the traffic of Services.
 *
 * @module
 */
import type { ServiceTraffic, Traffic } from "../../../model/service_traffic.ts";
import type { ProxyState, ServicePort, ServicePortKey } from "../../../model/state.ts";
import {
  NODEPORT_TRAFFIC_IN_SET,
  NODEPORT_TRAFFIC_OUT_SET,
  PROTOCOL_WORDS,
  SERVICE_TRAFFIC_IN_SET,
  SERVICE_TRAFFIC_OUT_SET,
} from "./chains.ts";

/** The sets of counters, and which way the packets go that they count. */
export const TRAFFIC_SETS: ReadonlyMap<string, "incoming" | "outgoing"> = new Map([
  [SERVICE_TRAFFIC_IN_SET, "incoming"],
  [SERVICE_TRAFFIC_OUT_SET, "outgoing"],
  [NODEPORT_TRAFFIC_IN_SET, "incoming"],
  [NODEPORT_TRAFFIC_OUT_SET, "outgoing"],
]);

/** Name of a set → destination → what was counted. */
export type CountedSets = ReadonlyMap<string, ReadonlyMap<string, Traffic>>;

interface Seen extends Traffic {
  readonly owner: ServicePortKey;
}

interface Total {
  readonly incoming: { packets: number; bytes: number };
  readonly outgoing: { packets: number; bytes: number };
}

/**
 * Sums that never go back, whatever becomes of the kernel's counters: a counter that begins anew goes on from what was
 * counted, and what an address counted stays when it goes. They begin with what the kernel holds at the first reading.
 */
export class TrafficTotals {
  #seen = new Map<string, Seen>();
  readonly #totals = new Map<ServicePortKey, Total>();

  /** Takes a reading over; yields the ports of the state's Services that ever had a packet. */
  take(state: ProxyState, counted: CountedSets): readonly ServiceTraffic[] {
    const owners = ownersOf(state);
    const seen = new Map<string, Seen>();
    for (const [set, destinations] of counted) {
      const way = TRAFFIC_SETS.get(set);
      if (way === undefined) continue;
      for (const [destination, now] of destinations) {
        const owner = now.packets === 0 ? undefined : owners.get(destination)?.key;
        if (owner === undefined) continue;
        const name = `${set} ${destination}`;
        this.#add(owner, way, growth(this.#seen.get(name), now, owner));
        seen.set(name, { ...now, owner });
      }
    }
    this.#seen = seen;
    return this.#traffic(state);
  }

  #add(owner: ServicePortKey, way: keyof Total, { packets, bytes }: Traffic): void {
    const total = this.#totals.get(owner) ??
      { incoming: { packets: 0, bytes: 0 }, outgoing: { packets: 0, bytes: 0 } };
    total[way].packets += packets;
    total[way].bytes += bytes;
    this.#totals.set(owner, total);
  }

  #traffic({ family, services }: ProxyState): readonly ServiceTraffic[] {
    const traffic: ServiceTraffic[] = [];
    const gone = new Set(this.#totals.keys());
    for (const servicePorts of services.values()) {
      for (const { key, namespacedName, portName, port, protocol } of servicePorts) {
        const total = this.#totals.get(key);
        if (total === undefined) continue;
        gone.delete(key);
        const { incoming, outgoing } = total;
        traffic.push({
          family,
          namespacedName,
          portName,
          port,
          protocol,
          incoming: { ...incoming },
          outgoing: { ...outgoing },
        });
      }
    }
    for (const key of gone) this.#totals.delete(key);
    return traffic;
  }
}

/** What was counted since; all of it if the counter began anew, which a counter of another owner did. */
function growth(seen: Seen | undefined, now: Traffic, owner: ServicePortKey): Traffic {
  if (seen === undefined || seen.owner !== owner || now.packets < seen.packets || now.bytes < seen.bytes) {
    return now;
  }
  return { packets: now.packets - seen.packets, bytes: now.bytes - seen.bytes };
}

/** Who has each destination. */
function ownersOf({ services }: ProxyState): ReadonlyMap<string, ServicePort> {
  const owners = new Map<string, ServicePort>();
  for (const servicePorts of services.values()) {
    for (const servicePort of servicePorts) {
      const { clusterIP, externalIPs, loadBalancerVIPs, port, nodePort } = servicePort;
      const protocol = PROTOCOL_WORDS[servicePort.protocol];
      for (const ip of [clusterIP, ...externalIPs, ...loadBalancerVIPs]) {
        owners.set(`${ip} . ${protocol} . ${port}`, servicePort);
      }
      if (nodePort !== 0) owners.set(`${protocol} . ${nodePort}`, servicePort);
    }
  }
  return owners;
}
