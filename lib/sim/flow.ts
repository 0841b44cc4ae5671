/**
 * A virtual packet, what a ruleset does with it, from and to readable text, and how likely that is. Shared by the simulators of all modes.
 *
 * @module
 */

import type { Protocol } from "../model/objects.ts";

/** The protocols that a packet may have; `icmp` stands for ICMPv6 too. */
export type PacketProtocol = "tcp" | "udp" | "sctp" | "icmp";

/** The protocol as Services name it; null: Services do not have it. */
export function serviceProtocol(protocol: PacketProtocol): Protocol | null {
  return protocol === "icmp" ? null : protocol.toUpperCase() as Protocol;
}

/** `UNTRACKED`: a rule has exempted it from connection tracking, so that nothing is translated. */
export type PacketState = "NEW" | "ESTABLISHED" | "RELATED" | "INVALID" | "UNTRACKED";

/** The packet as it arrives, or as a process on the node sends it. */
export interface Packet {
  /** Source address. */
  readonly source: string;
  /** Destination address. */
  readonly destination: string;
  /** `icmp` stands for ICMPv6 too. */
  readonly protocol: PacketProtocol;
  /** Destination port; 0 for ICMP. */
  readonly port: number;
  /** `""` if a process on the node sends it. */
  readonly inInterface: string;
  /** Conntrack state. */
  readonly state: PacketState;
  /** The packet mark at the start. */
  readonly mark: number;
}

/** One rule that a packet matched, or the policy of a base chain that ended its path. */
export interface RuleHit {
  /** The table of the rule. */
  readonly table: string;
  /** The chain of the rule. */
  readonly chain: string;
  /** 1-based position in the chain; 0: its policy. */
  readonly index: number;
  /** The rule's text. */
  readonly rule: string;
  /** Hook of the chain; set where the simulator knows more than one kind of rules. */
  readonly hook?: FlowHook;
}

/** Netfilter hooks that call base chains. */
export type FlowHook = "prerouting" | "input" | "forward" | "output" | "postrouting";

/** One possible outcome for the packet. */
export interface FlowOutcome {
  /** Exact probability of the outcome. */
  readonly probability: Fraction;
  /** Final verdict. */
  readonly verdict: "accept" | "drop" | "reject";
  /** The type of the refusal, e.g. `icmp-port-unreachable`; `closed` where a connection is taken and closed; `""` unless rejected. */
  readonly rejectWith: string;
  /** `ip:port` it was redirected to; `""` if its destination was left alone. */
  readonly translatedTo: string;
  /** True if it is delivered on the node, false if it leaves the node; of accepted packets. */
  readonly toNode: boolean;
  /** True if its source becomes the node's address when it leaves. */
  readonly masquerade: boolean;
  /** The packet mark at the end. */
  readonly mark: number;
  /** Affinity lists that now remember the packet's source. */
  readonly remembered: readonly string[];
  /** Rules on the packet's path, in order. */
  readonly hits: readonly RuleHit[];
}

/** All possible outcomes for a packet; the probabilities add up to 1. */
export interface Flow {
  /** Distinct outcomes, in order of destination. */
  readonly outcomes: readonly FlowOutcome[];
  /** Faults of the ruleset, or limits of the simulator, in words. */
  readonly problems: readonly string[];
}

function outcomeKey(outcome: FlowOutcome): string {
  const { verdict, rejectWith, translatedTo, toNode, masquerade, mark, remembered } = outcome;
  return [verdict, rejectWith, translatedTo, toNode, masquerade, mark, ...remembered].join("\n");
}

/** True if both flows have the same outcomes; the rules on the path may differ. */
export function isSameFlow({ outcomes }: Flow, other: Flow): boolean {
  return outcomes.length === other.outcomes.length && outcomes.every((outcome, at) => {
    const { probability } = outcome;
    const same = other.outcomes[at]!;
    return outcomeKey(outcome) === outcomeKey(same) && probability.numerator === same.probability.numerator &&
      probability.denominator === same.probability.denominator;
  });
}

/** Adds up outcomes that differ only in the rules on their path (the first one's rules stay), in order of destination. */
export function mergeOutcomes(outcomes: readonly FlowOutcome[]): FlowOutcome[] {
  const merged = new Map<string, FlowOutcome>();
  for (const outcome of outcomes) {
    const key = outcomeKey(outcome);
    const same = merged.get(key);
    merged.set(
      key,
      same === undefined ? outcome : { ...same, probability: add(same.probability, outcome.probability) },
    );
  }
  return [...merged.values()].sort((a, b) => compareText(a.translatedTo, b.translatedTo));
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function endText(outcome: FlowOutcome): string {
  if (outcome.verdict === "drop") return "dropped";
  if (outcome.verdict === "reject") return outcome.rejectWith === "closed" ? "closed" : "rejected";
  if (outcome.translatedTo !== "") return outcome.translatedTo;
  return outcome.toNode ? "this node" : "untranslated";
}

/** Further effects on an accepted packet: masquerade, leftover mark. */
function manner(outcome: FlowOutcome): string[] {
  if (outcome.verdict !== "accept") return [];
  const untouched = outcome.translatedTo === "" && !outcome.masquerade;
  return [
    ...(untouched ? [] : [`masquerade ${outcome.masquerade ? "yes" : "no"}`]),
    ...(outcome.mark === 0 ? [] : [`mark 0x${outcome.mark.toString(16)} left`]),
  ];
}

/**
 * The text of a flow's result, e.g. `10.180.0.1:80 (1/2) | 10.180.0.2:80 (1/2), masquerade no`; with differing manners
 * `10.180.0.1:80 (1/2, masquerade yes) | 10.180.0.2:80 (1/2, masquerade no)`. Others are `dropped`, `rejected`, `this node` (delivered
 * there as it is), `untranslated` (passed on as it is), `closed` (a process of the node takes the connection and closes it).
 */
export function formatFlow(flow: Flow): string {
  const ends = new Map<string, { readonly end: string; readonly manner: string; probability: Fraction }>();
  for (const outcome of flow.outcomes) {
    const one = {
      end: endText(outcome),
      manner: manner(outcome).join(", "),
      probability: outcome.probability,
    };
    const key = JSON.stringify([one.end, one.manner]);
    const same = ends.get(key);
    // Their destinations may differ: for dropped packets they do not matter.
    if (same === undefined) ends.set(key, one);
    else same.probability = add(same.probability, one.probability);
  }
  const all = [...ends.values()];
  const [first] = all;
  const isShared = all.every((one) => one.manner === first?.manner);
  const parts = all.map(({ end, manner, probability }) => {
    const chance = formatFraction(probability);
    const notes = [chance === "1" ? "" : chance, isShared ? "" : manner].filter((text) => text !== "");
    return end + (notes.length === 0 ? "" : ` (${notes.join(", ")})`);
  });
  return [parts.join(" | "), ...(isShared ? [first?.manner ?? ""] : [])].filter((text) => text !== "").join(
    ", ",
  );
}

const PACKET_REGEXP =
  /^(?<source>\S+?)(?:@(?<inInterface>\S+))? → (?:\[(?<ip6>[^\]]+)\]:(?<port6>\d+)|(?<ip4>[\d.]+):(?<port4>\d+)|(?<ip>[^\s/]+))(?:\/(?<protocol>tcp|udp|sctp|icmp))?(?: (?<state>NEW|ESTABLISHED|RELATED|INVALID|UNTRACKED))?(?: mark (?<mark>0x[0-9a-f]+))?$/;

/**
 * Reads the text of a packet, e.g. `10.0.0.7@eth0 → 172.30.0.41:80`; the interface of a process on the node is `node`. Without
 * an interface it comes in on `eth0`.
 *
 * @throws {SyntaxError} if the text is no packet
 */
export function parsePacket(text: string): Packet {
  const groups = PACKET_REGEXP.exec(text)?.groups;
  const protocol = groups?.protocol ?? "tcp";
  const destination = groups?.ip6 ?? groups?.ip4 ?? groups?.ip;
  const port = groups?.port6 ?? groups?.port4;
  if (groups === undefined || destination === undefined || (port === undefined) !== (protocol === "icmp")) {
    throw new SyntaxError(`"${text}" is not a packet like "10.0.0.7@eth0 → 10.96.0.1:80/udp"`);
  }
  const inInterface = groups.inInterface ?? "eth0";
  return {
    source: groups.source ?? "",
    destination,
    protocol: protocol as PacketProtocol,
    port: Number(port ?? 0),
    inInterface: inInterface === "node" ? "" : inInterface,
    state: (groups.state ?? "NEW") as PacketState,
    mark: Number(groups.mark ?? 0),
  };
}

/** A reduced fraction; the denominator is positive. */
export interface Fraction {
  /** Not negative. */
  readonly numerator: bigint;
  /** Positive. */
  readonly denominator: bigint;
}

export const ONE: Fraction = { numerator: 1n, denominator: 1n };

/** Number of steps in which the kernel stores a probability. */
const KERNEL_STEPS = 2147483648n;

function greatestCommonDivisor(a: bigint, b: bigint): bigint {
  return b === 0n ? a : greatestCommonDivisor(b, a % b);
}

function reduced(numerator: bigint, denominator: bigint): Fraction {
  const divisor = greatestCommonDivisor(numerator, denominator);
  return { numerator: numerator / divisor, denominator: denominator / divisor };
}

/** `a * b`. */
export function multiply(a: Fraction, b: Fraction): Fraction {
  return reduced(a.numerator * b.numerator, a.denominator * b.denominator);
}

/** `a + b`. */
export function add(a: Fraction, b: Fraction): Fraction {
  return reduced(
    a.numerator * b.denominator + b.numerator * a.denominator,
    a.denominator * b.denominator,
  );
}

/** `1 - a`. */
export function complement(a: Fraction): Fraction {
  return reduced(a.denominator - a.numerator, a.denominator);
}

/**
 * Reads a `--probability`. Decimals that are 1/k up to the kernel's rounding are taken as exactly 1/k, because that is what the
 * writer meant; others as the kernel's 31 bits.
 */
export function probabilityFraction(text: string): Fraction {
  const steps = BigInt(Math.round(Number(text) * Number(KERNEL_STEPS)));
  if (steps === 0n) return { numerator: 0n, denominator: 1n };
  const inverse = BigInt(Math.round(1 / Number(text)));
  const stepsOfInverse = BigInt(Math.round(Number(KERNEL_STEPS) / Number(inverse)));
  // Ten written decimals are coarser than the 31 bits by up to one step, kept twice.
  const distance = steps > stepsOfInverse ? steps - stepsOfInverse : stepsOfInverse - steps;
  return distance <= 1n ? { numerator: 1n, denominator: inverse } : reduced(steps, KERNEL_STEPS);
}

/** `1/3`; `1` and `0` without a denominator. */
export function formatFraction(value: Fraction): string {
  return value.denominator === 1n ? String(value.numerator) : `${value.numerator}/${value.denominator}`;
}
