/**
 * Reads the counters of destinations from the kernel, when it is asked for and not too often, and sums them up to the traffic of Services.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import { parseCounters } from "../../../netfilter/nft_listing.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ServiceTraffic, Traffic } from "../../../model/service_traffic.ts";
import type { ProxyState, ServicePort, ServicePortKey } from "../../../model/state.ts";
import type { Logger } from "../../../observe/log.ts";
import { PROTOCOL_WORDS, SETS, TABLE_NAME } from "../plan/chains.ts";

/** Reading takes at most this share of the time, however often it is asked for. */
const MAX_SHARE = 0.05;
/** Shortest time between the beginnings of two readings. */
const MIN_INTERVAL_MS = 1_000;

/** Line in the list of a set with counters. Linux before 5.7 takes the word and forgets it. */
const COUNTS = /^\t\tcounter$/m;

/** Dependencies of a {@linkcode TrafficReader}. */
export interface TrafficReaderOptions {
  readonly nft: Nft;
  readonly family: IpFamily;
  /** The state whose Services own the counters now; null before the first sync. */
  readonly state: () => ProxyState | null;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** Reader of traffic counters; see the module. */
export class TrafficReader {
  readonly #options: TrafficReaderOptions;
  readonly #totals = new TrafficTotals();
  #known: readonly ServiceTraffic[] = [];
  #reading: Promise<readonly ServiceTraffic[]> | null = null;
  #nextMs = Number.NEGATIVE_INFINITY;
  #hasWarned = false;

  constructor(options: TrafficReaderOptions) {
    this.#options = options;
  }

  /** Traffic of Services, as of the latest reading if the next one is not due. Never rejects. */
  read(): Promise<readonly ServiceTraffic[]> {
    if (this.#reading !== null) return this.#reading;
    if (this.#options.nowMs() < this.#nextMs) return Promise.resolve(this.#known);
    this.#reading = this.#readNow().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #readNow(): Promise<readonly ServiceTraffic[]> {
    const { nft, family, state: stateNow, logger, nowMs } = this.#options;
    const startMs = nowMs();
    try {
      const counted = new Map<string, ReturnType<typeof parseCounters>>();
      for (const name of TRAFFIC_SETS.keys()) {
        const text = await nft.listSet(nftFamily(family), TABLE_NAME, name);
        // Another program deleted the set: it is back soon, and what was counted stays.
        if (text === null) return this.#known;
        if (!COUNTS.test(text)) this.#warnOfForgottenCounters();
        counted.set(name, parseCounters(text));
      }
      const state = stateNow();
      if (state !== null) this.#known = this.#totals.take(state, counted);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      logger.info("Traffic counters cannot be read", { family, problem: error.message }, 2);
    } finally {
      const tookMs = nowMs() - startMs;
      this.#nextMs = startMs + Math.max(MIN_INTERVAL_MS, tookMs / MAX_SHARE);
    }
    return this.#known;
  }

  #warnOfForgottenCounters(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    const { logger, family } = this.#options;
    logger.warn("Traffic is not counted: this kernel forgets counters of set elements", { family });
  }
}

/** The sets of counters, and the direction of the packets that they count. */
const TRAFFIC_SETS: ReadonlyMap<string, "incoming" | "outgoing"> = new Map([
  [SETS.serviceTrafficIn, "incoming"],
  [SETS.serviceTrafficOut, "outgoing"],
  [SETS.nodePortTrafficIn, "incoming"],
  [SETS.nodePortTrafficOut, "outgoing"],
]);

/** Name of a set → destination → counted traffic. */
export type CountedSets = ReadonlyMap<string, ReadonlyMap<string, Traffic>>;

interface Seen extends Traffic {
  readonly owner: ServicePortKey;
}

interface Total {
  readonly incoming: { packets: number; bytes: number };
  readonly outgoing: { packets: number; bytes: number };
}

/**
 * Sums that never decrease, even if the kernel's counters do: a counter that begins anew goes on from what was
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

/** Traffic since the last reading; all of it if the counter began anew, as one with another owner did. */
function growth(seen: Seen | undefined, now: Traffic, owner: ServicePortKey): Traffic {
  if (seen === undefined || seen.owner !== owner || now.packets < seen.packets || now.bytes < seen.bytes) {
    return now;
  }
  return { packets: now.packets - seen.packets, bytes: now.bytes - seen.bytes };
}

/** The Service port that owns each destination. */
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
