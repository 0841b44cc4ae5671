/**
 * A virtual packet on its way through rules: what is known of it at each point, how histories split and join, and what it
 * leaves behind. Shared by the simulators of the modes whose rules are walked one by one.
 *
 * @module
 */
import { type Ip, isLoopback, joinHostPort, parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import type { FlowOutcome, Packet, PacketProtocol, PacketState, RuleHit } from "./flow.ts";
import { add, type Fraction, ONE } from "./fraction.ts";

/** Affinity list → source address → second of its last new connection. */
export type AffinityMemory = ReadonlyMap<string, ReadonlyMap<string, number>>;

/** What the packet's fate depends on besides the rules. */
export interface Surroundings {
  /** The node's own addresses; loopback goes without saying. */
  readonly nodeAddresses: readonly string[];
  /** Who stuck to which endpoint before the packet. */
  readonly affinity: AffinityMemory;
  /** The time of the packet, on the clock of {@linkcode AffinityMemory}. */
  readonly nowSeconds: number;
  /** The interface through which a packet to the address leaves; null: there is no way; undefined or absent: not known. */
  readonly outInterface?: (address: string) => string | null | undefined;
  /** True for bridges whose packets come to the rules by their ports (`bridge-nf-call-iptables`); absent: for none. */
  readonly isBridged?: (name: string, family: IpFamily) => boolean;
  /** The first address of an interface, to which a rule redirects what came in by it; null: it has none; undefined or absent: not known. */
  readonly addressOf?: (name: string, family: IpFamily) => string | null | undefined;
}

/** One possible history of the packet, as far as it got. */
export interface Walk {
  readonly probability: Fraction;
  readonly source: Ip;
  readonly destination: Ip;
  /** What it was first sent to, which connection tracking remembers. */
  readonly original: { readonly destination: Ip; readonly port: number };
  readonly protocol: PacketProtocol;
  readonly port: number;
  readonly inInterface: string;
  readonly state: PacketState;
  readonly mark: number;
  readonly translated: boolean;
  readonly masquerade: boolean;
  readonly remembered: readonly string[];
  readonly hits: readonly RuleHit[];
}

/** A walk whose fate in one hook is decided. */
export interface EndedWalk {
  readonly walk: Walk;
  readonly verdict: FlowOutcome["verdict"];
  readonly rejectWith: string;
}

/** The walk of a packet that no rule has seen yet. */
export function startOfWalk(packet: Packet): Walk {
  const source = parseIp(packet.source);
  const destination = parseIp(packet.destination);
  if (source === null || destination === null) {
    throw new RangeError(`Packet from "${packet.source}" to "${packet.destination}" has an invalid address`);
  }
  if (source.family !== destination.family) {
    throw new RangeError(`Packet from ${packet.source} to ${packet.destination} mixes IP families`);
  }
  return {
    probability: ONE,
    source,
    destination,
    original: { destination, port: packet.port },
    protocol: packet.protocol,
    port: packet.port,
    inInterface: packet.inInterface,
    state: packet.state,
    mark: packet.mark,
    translated: false,
    masquerade: false,
    remembered: [],
    hits: [],
  };
}

export function acceptedWalk(walk: Walk): EndedWalk {
  return { walk, verdict: "accept", rejectWith: "" };
}

/** A refusal, by the kernel's default type of the packet's family unless the rule names one. */
export function rejectedWalk(walk: Walk, rejectWith: string | null): EndedWalk {
  const usual = walk.source.family === "IPv4" ? "icmp-port-unreachable" : "icmp6-port-unreachable";
  return { walk, verdict: "reject", rejectWith: rejectWith ?? usual };
}

/** Goes on with those that were let through. */
export function onward(
  ended: readonly EndedWalk[],
  next: (walk: Walk) => readonly EndedWalk[],
): readonly EndedWalk[] {
  return ended.flatMap((one) => one.verdict === "accept" ? next(one.walk) : [one]);
}

/** The walk with one more affinity list that now remembers its source. */
export function rememberedIn(list: string, walk: Walk): Walk {
  return { ...walk, remembered: [...walk.remembered.filter((known) => known !== list), list] };
}

/**
 * Adds up histories from which the packet goes on alike; the rules on the way of the first one stay. Without it a chain of
 * choices that all come back would double the histories at every rule.
 */
export function mergeWalks(walks: readonly Walk[]): readonly Walk[] {
  if (walks.length < 2) return walks;
  const merged = new Map<string, Walk>();
  for (const walk of walks) {
    const key = [
      walk.source.text,
      walk.destination.text,
      walk.port,
      walk.mark,
      walk.state,
      walk.translated,
      walk.masquerade,
    ]
      .concat(walk.remembered).join(" ");
    const same = merged.get(key);
    const probability = same === undefined ? walk.probability : add(same.probability, walk.probability);
    merged.set(key, { ...(same ?? walk), probability });
  }
  return [...merged.values()];
}

/** True for the node's own addresses, loopback included. */
export function isNodeAddress(ip: Ip, { nodeAddresses }: Surroundings): boolean {
  return isLoopback(ip) || nodeAddresses.includes(ip.text);
}

/** The interface that the packet is about to leave through; undefined: not known. */
export function leavesThrough({ destination }: Walk, surroundings: Surroundings): string | undefined {
  if (isNodeAddress(destination, surroundings)) return "lo";
  return surroundings.outInterface?.(destination.text) ?? undefined;
}

/** Where a rule sends a packet that it redirects: to loopback if a process of the node sent it. Null: there is no such address. */
export function redirectedTo(
  { inInterface, source: { family } }: Walk,
  surroundings: Surroundings,
): Ip | null {
  const loopback = parseIp(family === "IPv4" ? "127.0.0.1" : "::1");
  if (inInterface === "" || inInterface === "lo") return loopback;
  const known = surroundings.addressOf?.(inInterface, family);
  if (known !== undefined) return known === null ? null : parseIp(known);
  const isUsual = (ip: Ip | null): boolean => ip?.family === family && !isLoopback(ip);
  // Where no address is known, any of the node's does.
  return surroundings.nodeAddresses.map(parseIp).find(isUsual) ?? loopback;
}

/** The packet when it comes back in: what the node sends to itself goes out through `lo`, with its source already settled. */
export function throughLoopback(walk: Walk, { nodeAddresses }: Surroundings): Walk {
  const own = nodeAddresses.map(parseIp).find((ip) => ip?.family === walk.source.family);
  const source = walk.masquerade ? own ?? walk.source : walk.source;
  return { ...walk, source, inInterface: "lo" };
}

/** What has become of a packet at the end of its way. */
export function outcomeOfWalk(
  { walk, verdict, rejectWith }: EndedWalk,
  surroundings: Surroundings,
): FlowOutcome {
  return {
    probability: walk.probability,
    verdict,
    rejectWith,
    translatedTo: walk.translated ? joinHostPort(walk.destination.text, walk.port) : "",
    toNode: isNodeAddress(walk.destination, surroundings),
    masquerade: walk.masquerade,
    mark: walk.mark,
    remembered: walk.remembered,
    hits: walk.hits,
  };
}

/** The affinity memory after the packet took this outcome. */
export function rememberOutcome(
  memory: AffinityMemory,
  packet: Packet,
  outcome: FlowOutcome,
  nowSeconds: number,
): AffinityMemory {
  const source = parseIp(packet.source)?.text ?? packet.source;
  const next = new Map(memory);
  for (const list of outcome.remembered) next.set(list, new Map(next.get(list)).set(source, nowSeconds));
  return next;
}
