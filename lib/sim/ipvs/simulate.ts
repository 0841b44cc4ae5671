/**
 * Walks a virtual packet through iptables rules, sets and virtual servers, following every real server it may get.
 *
 * What it knows of the kernel beside the rules: IPVS sees a packet to an address of the node after filter INPUT, one from
 * the node after nat OUTPUT; a packet with its new destination leaves through filter OUTPUT and nat POSTROUTING and not
 * through FORWARD; a virtual server without real ones refuses; only a connection's first packet is given to a real
 * server. The mangle, raw and security tables are taken as empty, and every scheduler as one that is fair.
 *
 * @module
 */
import { cidrContains, type Ip, joinHostPort, parseCidr, parseIp } from "../../model/ip.ts";
import type { Protocol } from "../../model/objects.ts";
import { type Flow, mergeOutcomes, type Packet } from "../flow.ts";
import type { Simulator } from "../simulator.ts";
import { type Fraction, multiply } from "../fraction.ts";
import { ipPortEntry, type SavedSet, type SetType } from "../../netfilter/ipset.ts";
import type { RuleMatch } from "../../netfilter/iptables_rule.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { ModeConditions } from "../iptables_match.ts";
import { type IptablesPass, IptablesTables } from "../iptables_walk.ts";
import {
  type IpvsTable,
  type RealServer,
  realServerKey,
  type SavedVirtualServer,
  virtualServerKey,
} from "../../netfilter/ipvs.ts";
import {
  acceptedWalk,
  type EndedWalk,
  isNodeAddress,
  outcomeOfWalk,
  rejectedWalk,
  rememberedIn,
  startOfWalk,
  type Surroundings,
  throughLoopback,
  type Walk,
} from "../packet_walk.ts";

/** What one family of the kernel holds. */
export interface IpvsKernel {
  /** Built-in chains included. */
  readonly tables: IptablesRuleset;
  /** By name. */
  readonly sets: ReadonlyMap<string, SavedSet>;
  readonly ipvs: IpvsTable;
  /** Addresses on our device. */
  readonly bound: readonly string[];
}

/** By name, and by number as `iptables-save` prints it. */
const IPVS_PROTOCOLS: ReadonlyMap<string, Protocol> = new Map([
  ["tcp", "TCP"],
  ["6", "TCP"],
  ["udp", "UDP"],
  ["17", "UDP"],
  ["sctp", "SCTP"],
  ["132", "SCTP"],
]);

/** One family of a node, ready for packets. */
export class IpvsSimulator implements Simulator {
  readonly #kernel: IpvsKernel;
  readonly #tables: IptablesTables;

  constructor(kernel: IpvsKernel) {
    this.#kernel = kernel;
    this.#tables = new IptablesTables(kernel.tables);
  }

  /**
   * Says what becomes of the packet. Affinity lists are called `ipvs VIRTUAL-SERVER REAL-SERVER`.
   *
   * @throws {RangeError} if an address of the packet is none
   * @throws {SyntaxError} if a rule on its way does not parse
   */
  send(packet: Packet, surroundings: Surroundings): Flow {
    const onNode = {
      ...surroundings,
      nodeAddresses: [...surroundings.nodeAddresses, ...this.#kernel.bound],
    };
    const problems = new Set<string>();
    const trip = new Trip(this.#kernel, this.#tables, onNode, problems);
    const ended = packet.inInterface === ""
      ? trip.fromNode(startOfWalk(packet))
      : trip.fromOutside(startOfWalk(packet));
    const outcomes = ended.map((one) => outcomeOfWalk(one, onNode));
    return { outcomes: mergeOutcomes(outcomes), problems: [...problems] };
  }
}

/** Goes on with those that were let through. */
function onward(
  ended: readonly EndedWalk[],
  next: (walk: Walk) => readonly EndedWalk[],
): readonly EndedWalk[] {
  return ended.flatMap((one) => one.verdict === "accept" ? next(one.walk) : [one]);
}

/** A packet that was given to a real server. */
interface Scheduled {
  readonly server: SavedVirtualServer;
  readonly walks: readonly Walk[];
}

/** One packet's way. */
class Trip {
  readonly #kernel: IpvsKernel;
  readonly #tables: IptablesTables;
  readonly #surroundings: Surroundings;
  readonly #problems: Set<string>;
  readonly #pass: IptablesPass;

  constructor(
    kernel: IpvsKernel,
    tables: IptablesTables,
    surroundings: Surroundings,
    problems: Set<string>,
  ) {
    this.#kernel = kernel;
    this.#tables = tables;
    this.#surroundings = surroundings;
    this.#problems = problems;
    this.#pass = tables.pass(surroundings, problems, this.#conditions(null));
  }

  fromOutside(start: Walk): readonly EndedWalk[] {
    return onward(this.#pass.hook("nat", "PREROUTING", start), (walk) => {
      if (isNodeAddress(walk.destination, this.#surroundings)) return this.#intoNode(walk);
      return onward(this.#pass.hook("filter", "FORWARD", walk), (passed) => this.#leave(this.#pass, passed));
    });
  }

  fromNode(start: Walk): readonly EndedWalk[] {
    return onward(this.#pass.hook("nat", "OUTPUT", start), (walk) => {
      const scheduled = this.#schedule(walk);
      if (scheduled !== null) return this.#toRealServers(walk, scheduled);
      return this.#outOfNode(this.#pass, walk);
    });
  }

  #intoNode(walk: Walk): readonly EndedWalk[] {
    return onward(this.#pass.hook("filter", "INPUT", walk), (passed) => {
      const scheduled = this.#schedule(passed);
      return scheduled === null ? [acceptedWalk(passed)] : this.#toRealServers(passed, scheduled);
    });
  }

  #leave(pass: IptablesPass, walk: Walk): readonly EndedWalk[] {
    return pass.hook("nat", "POSTROUTING", walk);
  }

  /** From a process on the node, past IPVS. */
  #outOfNode(pass: IptablesPass, walk: Walk): readonly EndedWalk[] {
    const out = onward(pass.hook("filter", "OUTPUT", walk), (passed) => this.#leave(pass, passed));
    if (!isNodeAddress(walk.destination, this.#surroundings)) return out;
    return onward(out, (passed) => {
      const back = throughLoopback(passed, this.#surroundings);
      // What IPVS has sent here is known to it; anything else it sees for the first time.
      return walk.translated ? pass.hook("filter", "INPUT", back) : this.#intoNode(back);
    });
  }

  #toRealServers(origin: Walk, { server, walks }: Scheduled): readonly EndedWalk[] {
    // The kernel answers such a packet itself, by ICMP.
    if (walks.length === 0) return [rejectedWalk(origin, null)];
    const pass = this.#tables.pass(this.#surroundings, this.#problems, this.#conditions(server));
    return walks.flatMap((walk) => {
      if (!isNodeAddress(walk.destination, this.#surroundings)) {
        return onward(pass.hook("filter", "OUTPUT", walk), (passed) => this.#leave(pass, passed));
      }
      return origin.inInterface === "" ? this.#outOfNode(pass, walk) : [acceptedWalk(walk)];
    });
  }

  /** Which real servers the packet may get; null if no virtual server takes it. */
  #schedule(walk: Walk): Scheduled | null {
    const protocol = IPVS_PROTOCOLS.get(walk.protocol);
    // Packets of connections that it does not know are none of its business.
    if (protocol === undefined || walk.state !== "NEW") return null;
    const key = virtualServerKey({ address: walk.destination.text, protocol, port: walk.port });
    const server = this.#kernel.ipvs.virtualServers.get(key);
    if (server === undefined) return null;
    const open = [...server.realServers.values()].filter((real) => real.weight > 0);
    const kept = this.#kept(server, key, open, walk);
    const chosen = kept === undefined ? open : [kept];
    const total = chosen.reduce((sum, real) => sum + real.weight, 0);
    const walks = chosen.map((real) => {
      const share: Fraction = { numerator: BigInt(real.weight), denominator: BigInt(total) };
      const sent = sentTo(real, { ...walk, probability: multiply(walk.probability, share) });
      return server.server.timeoutSeconds > 0 ? rememberedIn(affinityList(key, real), sent) : sent;
    });
    return { server, walks };
  }

  /** The real server that the client had last, within the time of the virtual server. */
  #kept(
    { server }: SavedVirtualServer,
    key: string,
    open: readonly RealServer[],
    { source }: Walk,
  ): RealServer | undefined {
    if (server.timeoutSeconds === 0) return undefined;
    const { affinity, nowSeconds } = this.#surroundings;
    const seen = (real: RealServer): number =>
      affinity.get(affinityList(key, real))?.get(source.text) ?? -Infinity;
    return open.filter((real) => nowSeconds - seen(real) <= server.timeoutSeconds)
      .sort((left, right) => seen(right) - seen(left))[0];
  }

  #conditions(through: SavedVirtualServer | null): ModeConditions {
    return {
      isInSet: (match, walk) => this.#isInSet(match, walk),
      goesThroughServer: (match) => {
        if (through === null) return false;
        const { address, protocol, port } = through.server;
        return parseIp(match.address)?.text === address && IPVS_PROTOCOLS.get(match.protocol) === protocol &&
          match.port === String(port);
      },
    };
  }

  #isInSet({ set: name, directions }: RuleMatch & { readonly kind: "set" }, walk: Walk): boolean {
    const set = this.#kernel.sets.get(name);
    if (set === undefined || set.definition === null) {
      this.#problems.add(`A rule looks into set ${name}, which does not exist`);
      return false;
    }
    return setHolds(set.definition.type, set.entries, directions, walk);
  }
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
