/**
 * Which real server of IPVS a virtual packet gets, and what rules that look into sets or ask for virtual servers find.
 *
 * @module
 */
import { cidrContains, type Ip, joinHostPort, parseCidr, parseIp } from "../../model/ip.ts";
import type { Protocol } from "../../model/objects.ts";
import { ipPortEntry, type SavedSet, type SetType } from "../../netfilter/ipset.ts";
import type { RuleMatch } from "../../netfilter/iptables_rule.ts";
import {
  type IpvsTable,
  type RealServer,
  realServerKey,
  type SavedVirtualServer,
  type VirtualServer,
  virtualServerKey,
} from "../../netfilter/ipvs.ts";
import type { RuleHit } from "../flow.ts";
import { type Fraction, multiply } from "../fraction.ts";
import type { ModeConditions } from "../iptables_match.ts";
import { rememberedIn, type Surroundings, type Walk } from "../packet_walk.ts";

/** By name, and by number as `iptables-save` prints it. */
const IPVS_PROTOCOLS: ReadonlyMap<string, Protocol> = new Map([
  ["tcp", "TCP"],
  ["6", "TCP"],
  ["udp", "UDP"],
  ["17", "UDP"],
  ["sctp", "SCTP"],
  ["132", "SCTP"],
]);

/** A packet that was given to a real server. */
export interface Scheduled {
  readonly server: SavedVirtualServer;
  readonly walks: readonly Walk[];
}

/** The virtual servers of a kernel. */
export class IpvsSchedule {
  readonly #table: IpvsTable;

  constructor(table: IpvsTable) {
    this.#table = table;
  }

  /** Which real servers the packet may get; null if no virtual server takes it. */
  schedule(walk: Walk, surroundings: Surroundings): Scheduled | null {
    const protocol = IPVS_PROTOCOLS.get(walk.protocol);
    // Packets of connections that it does not know are none of its business.
    if (protocol === undefined || walk.state !== "NEW") return null;
    const key = virtualServerKey({ address: walk.destination.text, protocol, port: walk.port });
    const server = this.#table.virtualServers.get(key);
    if (server === undefined) return null;
    const reals = [...server.realServers.values()];
    const open = reals.filter((real) => real.weight > 0);
    const kept = keptServer(server, key, open, walk, surroundings);
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

  /** What is told of a packet to a virtual server without real ones. */
  emptyHit({ server }: SavedVirtualServer): RuleHit {
    return { table: "ipvs", chain: virtualServerKey(server), index: 0, rule: "no real server" };
  }
}

/** The real server that the client had last, within the time of the virtual server. */
function keptServer(
  { server }: SavedVirtualServer,
  key: string,
  open: readonly RealServer[],
  { source }: Walk,
  { affinity, nowSeconds }: Surroundings,
): RealServer | undefined {
  if (server.timeoutSeconds === 0) return undefined;
  const seen = (real: RealServer): number =>
    affinity.get(affinityList(key, real))?.get(source.text) ?? -Infinity;
  return open.filter((real) => nowSeconds - seen(real) <= server.timeoutSeconds)
    .sort((left, right) => seen(right) - seen(left))[0];
}

/** Answers rules; `through` is the virtual server that the packet goes through, if it does. */
export function conditionsOf(
  sets: ReadonlyMap<string, SavedSet>,
  through: VirtualServer | null,
  report: (problem: string) => void,
): ModeConditions {
  return {
    isInSet: ({ set: name, directions }, walk) => {
      const set = sets.get(name);
      if (set === undefined || set.definition === null) {
        report(
          `A rule looks into set ${name}, which ${set === undefined ? "does not exist" : "cannot be read"}`,
        );
        return false;
      }
      return setHolds(set.definition.type, set.entries, directions, walk);
    },
    goesThroughServer: (match: RuleMatch & { readonly kind: "ipvs" }) => {
      if (through === null) return false;
      const { address, protocol, port } = through;
      return parseIp(match.address)?.text === address && IPVS_PROTOCOLS.get(match.protocol) === protocol &&
        match.port === String(port);
    },
  };
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

/** True if the packet is in a set of that type; each direction says which side one part of an entry is compared with. */
function setHolds(
  type: SetType,
  entries: ReadonlySet<string>,
  directions: readonly string[],
  walk: Walk,
): boolean {
  const side = (index: number): Ip => directions[index] === "src" ? walk.source : walk.destination;
  if (type === "hash:ip") return entries.has(side(0).text);
  const protocol = IPVS_PROTOCOLS.get(walk.protocol);
  if (protocol === undefined) return false;
  // Bitmaps know no protocol, but are only asked about these two.
  if (type === "bitmap:port") return protocol !== "SCTP" && entries.has(String(walk.port));
  const entry = ipPortEntry(side(0).text, protocol, walk.port);
  switch (type) {
    case "hash:ip,port":
      return entries.has(entry);
    case "hash:ip,port,ip":
      return entries.has(`${entry},${side(2).text}`);
    case "hash:ip,port,net":
      return [...entries].some((one) =>
        one.startsWith(`${entry},`) && contains(one.slice(entry.length + 1), side(2))
      );
    default:
      return type satisfies never;
  }
}

function contains(network: string, ip: Ip): boolean {
  const cidr = parseCidr(network.includes("/") ? network : `${network}/${ip.bytes.length * 8}`);
  return cidr !== null && cidrContains(cidr, ip);
}
