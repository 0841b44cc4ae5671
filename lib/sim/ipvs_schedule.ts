/**
 * IPVS for a virtual packet: which real servers may be scheduled. Every scheduler is taken as a fair one.
 *
 * @module
 */
import { joinHostPort, parseIp } from "../model/ip.ts";
import {
  type IpvsTable,
  type RealServer,
  realServerKey,
  type SavedVirtualServer,
  virtualServerKey,
} from "../netfilter/ipvs.ts";
import { type Fraction, multiply, serviceProtocol } from "./flow.ts";
import { type HostState, rememberedIn, type Walk } from "./packet_walk.ts";

/** A packet that IPVS scheduled to a virtual server. */
export interface Scheduled {
  readonly server: SavedVirtualServer;
  /** One walk per real server that may be chosen; empty: the virtual server has no real server. */
  readonly walks: readonly Walk[];
}

/** Schedules the packet; null if no virtual server matches it. Only the first packet of a connection is scheduled. */
export function schedule(table: IpvsTable, walk: Walk, hostState: HostState): Scheduled | null {
  const protocol = serviceProtocol(walk.protocol);
  if (protocol === null || walk.state !== "NEW") return null;
  const key = virtualServerKey({ address: walk.destination.text, protocol, port: walk.port });
  const server = table.virtualServers.get(key);
  if (server === undefined) return null;
  const reals = [...server.realServers.values()];
  const open = reals.filter((real) => real.weight > 0);
  const kept = keptServer(server, key, open, walk, hostState);
  const chosen = kept === undefined ? open : [kept];
  const total = chosen.reduce((sum, real) => sum + real.weight, 0);
  const walks = chosen.map((real) => {
    const share: Fraction = { numerator: BigInt(real.weight), denominator: BigInt(total) };
    const how = kept === undefined ? server.server.scheduler : "the server that the client had";
    const rule = `${how}: real server ${realServerKey(real)} weight ${real.weight}`;
    const hit = { table: "ipvs", chain: key, index: reals.indexOf(real) + 1, rule };
    const sent = sentTo(real, {
      ...walk,
      probability: multiply(walk.probability, share),
      hits: [...walk.hits, hit],
    });
    return server.server.timeoutSeconds > 0 ? rememberedIn(affinityList(key, real), sent) : sent;
  });
  return { server, walks };
}

/** The real server that the client last used, within the persistence timeout of the virtual server. */
function keptServer(
  { server }: SavedVirtualServer,
  key: string,
  open: readonly RealServer[],
  { source }: Walk,
  { affinity, nowSeconds }: HostState,
): RealServer | undefined {
  if (server.timeoutSeconds === 0) return undefined;
  const seen = (real: RealServer): number =>
    affinity.get(affinityList(key, real))?.get(source.text) ?? -Infinity;
  return open.filter((real) => nowSeconds - seen(real) <= server.timeoutSeconds)
    .sort((left, right) => seen(right) - seen(left))[0];
}

function affinityList(server: string, real: RealServer): string {
  return `ipvs ${server} ${realServerKey(real)}`;
}

function sentTo(real: RealServer, walk: Walk): Walk {
  const destination = parseIp(real.address);
  if (destination === null) {
    throw new RangeError(`Real server ${joinHostPort(real.address, real.port)} has no address`);
  }
  return { ...walk, destination, port: real.port, translated: true };
}
