/**
 * A virtual packet on its path through rules: its state at each point, how branches split and join, which affinity it leaves
 * behind, and how far it is followed.
 *
 * @module
 */
import {
  type Cidr,
  hostCidrText,
  type Ip,
  isLoopback,
  joinHostPort,
  parseCidr,
  parseIp,
} from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import {
  add,
  type FlowOutcome,
  type Fraction,
  ONE,
  type Packet,
  type PacketProtocol,
  type PacketState,
  type RuleHit,
} from "./flow.ts";

/** Affinity list → source address → second of its last new connection. */
export type AffinityMemory = ReadonlyMap<string, ReadonlyMap<string, number>>;

/** State of the node that decides about a packet besides the rules. Unknown state stops no packet. */
export interface HostState {
  /** The node's own addresses, without loopback. */
  readonly nodeAddresses: readonly string[];
  /** Session affinity before the packet: client → endpoint, and when. */
  readonly affinity: AffinityMemory;
  /** The time of the packet, on the clock of {@linkcode AffinityMemory}. */
  readonly nowSeconds: number;
  /** The interface through which a packet to the address leaves; null: there is no route; undefined or absent: unknown. */
  readonly outInterface?: (address: string) => string | null | undefined;
  /** True for bridges whose packets pass iptables by bridge port (`bridge-nf-call-iptables`); absent: for none. */
  readonly isBridged?: (name: string, family: IpFamily) => boolean;
  /** First address of an interface, the target of REDIRECT for packets from it; null: it has none; undefined or absent: unknown. */
  readonly addressOf?: (name: string, family: IpFamily) => string | null | undefined;
  /** Why packets for other hosts are not forwarded, e.g. `net.ipv4.ip_forward is 0`; null or absent: they are, or unknown. */
  readonly notForwarding?: Readonly<Record<IpFamily, string | null>>;
  /** Interfaces that are down. */
  readonly downInterfaces?: ReadonlySet<string>;
  /** Interfaces on which a source is only taken if the route back to it is through them (`rp_filter` 1). */
  readonly strictInterfaces?: ReadonlySet<string>;
  /**
   * Interfaces that accept packets from and to 127.0.0.0/8 (`route_localnet` 1); others drop them, except `lo`. Null or absent:
   * unknown.
   */
  readonly localnetInterfaces?: ReadonlySet<string> | null;
}

/** Context of one packet's walk. */
export interface PacketContext {
  readonly hostState: HostState;
  /** Parsed networks, shared by all packets. */
  readonly cidrs: Map<string, Cidr | null>;
  /** Receives a problem for each rule that cannot be evaluated. */
  readonly report: (problem: string) => void;
}

/** The parsed network; a single address counts as one. Null: the text is neither. */
export function networkOf({ cidrs }: PacketContext, text: string): Cidr | null {
  let cidr = cidrs.get(text);
  if (cidr === undefined) cidrs.set(text, cidr = parseCidr(text.includes("/") ? text : hostCidrText(text)));
  return cidr;
}

/** One branch of the packet's path, as far as it got. */
export interface Walk {
  readonly probability: Fraction;
  readonly source: Ip;
  readonly destination: Ip;
  /** Original destination, as connection tracking stores it. */
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

/** A walk with its verdict in one hook. */
export interface EndedWalk {
  readonly walk: Walk;
  readonly verdict: FlowOutcome["verdict"];
  readonly rejectWith: string;
}

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

/** A walk that ends with REJECT, by the kernel's default type of the family unless the rule names one. */
export function rejectedWalk(walk: Walk, rejectWith: string | null): EndedWalk {
  const usual = walk.source.family === "IPv4" ? "icmp-port-unreachable" : "icmp6-port-unreachable";
  return { walk, verdict: "reject", rejectWith: rejectWith ?? usual };
}

/** Continues the accepted walks; the others stay as they are. */
export function onward(
  ended: readonly EndedWalk[],
  next: (walk: Walk) => readonly EndedWalk[],
): readonly EndedWalk[] {
  return ended.flatMap((one) => one.verdict === "accept" ? next(one.walk) : [one]);
}

/** The walk, with its source now stored in one more affinity list. */
export function rememberedIn(list: string, walk: Walk): Walk {
  return { ...walk, remembered: [...walk.remembered.filter((known) => known !== list), list] };
}

/**
 * Merges branches that go on in the same state; the first one's hits stay. Without it a chain of
 * choices that all return would double the branches at every rule.
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
export function isNodeAddress(ip: Ip, { nodeAddresses }: HostState): boolean {
  return isLoopback(ip) || nodeAddresses.includes(ip.text);
}

/** The interface that the packet would leave through; undefined: unknown. */
export function leavesThrough({ destination }: Walk, hostState: HostState): string | undefined {
  if (isNodeAddress(destination, hostState)) return "lo";
  return hostState.outInterface?.(destination.text) ?? undefined;
}

/** The destination that REDIRECT sets: loopback for packets of the node's own processes. Null: the interface has no address. */
export function redirectedTo(
  { inInterface, source: { family } }: Walk,
  hostState: HostState,
): Ip | null {
  const loopback = parseIp(family === "IPv4" ? "127.0.0.1" : "::1");
  if (inInterface === "" || inInterface === "lo") return loopback;
  const known = hostState.addressOf?.(inInterface, family);
  if (known !== undefined) return known === null ? null : parseIp(known);
  const isUsual = (ip: Ip | null): boolean => ip?.family === family && !isLoopback(ip);
  // With the interface's address unknown, any address of the node will do.
  return hostState.nodeAddresses.map(parseIp).find(isUsual) ?? loopback;
}

/** The packet after its way through `lo` back into the node, with the source that masquerading gave it. */
export function throughLoopback(walk: Walk, { nodeAddresses }: HostState): Walk {
  const own = nodeAddresses.map(parseIp).find((ip) => ip?.family === walk.source.family);
  const source = walk.masquerade ? own ?? walk.source : walk.source;
  return { ...walk, source, inInterface: "lo" };
}

export function outcomeOfWalk(
  { walk, verdict, rejectWith }: EndedWalk,
  hostState: HostState,
): FlowOutcome {
  return {
    probability: walk.probability,
    verdict,
    rejectWith,
    translatedTo: walk.translated ? joinHostPort(walk.destination.text, walk.port) : "",
    toNode: isNodeAddress(walk.destination, hostState),
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

/** Limit of evaluated rules; with 44,000 Services a packet passes 100,000. */
const MAX_STEPS = 1_000_000;
/** Limit of entered chains; a Service has one for each of its endpoints. */
const MAX_JUMPS = 10_000;
const MAX_HISTORIES = 10_000;

/**
 * Limits of one packet's walk: forty chains, each of which jumps to the next one twice, are walked through 2^40 times by the kernel,
 * too. A walk over a limit is reported, and ends there.
 */
export class WalkBudget {
  readonly #report: (problem: string) => void;
  #steps = 0;
  #jumps = 0;

  constructor(report: (problem: string) => void) {
    this.#report = report;
  }

  /** Counts one more rule; false: the limit is reached. */
  step(): boolean {
    return this.#isWithin(++this.#steps, MAX_STEPS, "rules");
  }

  /** Counts one more chain; false: the limit is reached. */
  jump(): boolean {
    return this.#isWithin(++this.#jumps, MAX_JUMPS, "jumps");
  }

  /** The branches, cut off at the limit. */
  ways<Way>(ways: readonly Way[]): readonly Way[] {
    return this.#isWithin(ways.length, MAX_HISTORIES, "ways") ? ways : ways.slice(0, MAX_HISTORIES);
  }

  #isWithin(count: number, most: number, what: string): boolean {
    if (count <= most) return true;
    this.#report(`A packet takes more than ${most} ${what} here: it is not followed to its end`);
    return false;
  }
}
