/**
 * Whether a virtual packet meets the conditions of an iptables rule.
 *
 * @module
 */
import { type Cidr, cidrContains, hostCidrText, type Ip, parseCidr } from "../model/ip.ts";
import type { RuleMatch } from "../netfilter/iptables_rule.ts";
import { complement, multiply, probabilityFraction } from "./fraction.ts";
import type { PacketProtocol } from "./flow.ts";
import { wordsHold } from "./iptables/iptables_words.ts";
import { isNodeAddress, leavesThrough, rememberedIn, type Surroundings, type Walk } from "./packet_walk.ts";

/** Where a rule stands. */
export interface RulePlace {
  readonly table: string;
  readonly chain: string;
  /** From 1 on. */
  readonly index: number;
}

/** What is told of words that nobody can judge. */
export function unknownWords(words: string, { table, chain, index }: RulePlace): string {
  return `table ${table} chain ${chain} rule ${index}: "${words}" is not understood and taken as not matching`;
}

/** How a history splits at a rule. */
export interface MatchResult {
  readonly hit: Walk | null;
  readonly missed: readonly Walk[];
}

const PROTOCOL_NAMES: ReadonlyMap<string, PacketProtocol> = new Map([
  ["tcp", "tcp"],
  ["6", "tcp"],
  ["udp", "udp"],
  ["17", "udp"],
  ["sctp", "sctp"],
  ["132", "sctp"],
  ["icmp", "icmp"],
  ["1", "icmp"],
  ["icmpv6", "icmp"],
  ["ipv6-icmp", "icmp"],
  ["58", "icmp"],
]);

type SetMatch = RuleMatch & { readonly kind: "set" };
type IpvsMatch = RuleMatch & { readonly kind: "ipvs" };

/** Conditions that look at more than rules and packet, answered by a mode that has what they look at. */
export interface ModeConditions {
  readonly isInSet: (match: SetMatch, walk: Walk) => boolean;
  readonly goesThroughServer: (match: IpvsMatch, walk: Walk) => boolean;
}

/** Evaluates conditions against one set of surroundings; `report` receives what it cannot evaluate. */
export class RuleMatcher {
  readonly #surroundings: Surroundings;
  readonly #cidrs: Map<string, Cidr | null>;
  readonly #report: (problem: string) => void;
  readonly #conditions: ModeConditions | null;

  /** `cidrs` caches parsed addresses and may be shared between packets. */
  constructor(
    surroundings: Surroundings,
    cidrs: Map<string, Cidr | null>,
    report: (problem: string) => void,
    conditions: ModeConditions | null = null,
  ) {
    this.#surroundings = surroundings;
    this.#cidrs = cidrs;
    this.#report = report;
    this.#conditions = conditions;
  }

  /** Evaluates the conditions in order, as the kernel does: what a later one refuses may already have been remembered. */
  match(matches: readonly RuleMatch[], walk: Walk, place: RulePlace): MatchResult {
    const missed: Walk[] = [];
    let passing = walk;
    for (const match of matches) {
      if (match.kind === "statistic") {
        const written = probabilityFraction(match.probability);
        const probability = match.not ? complement(written) : written;
        const missing = multiply(passing.probability, complement(probability));
        const hitting = multiply(passing.probability, probability);
        if (missing.numerator > 0n) missed.push({ ...passing, probability: missing });
        if (hitting.numerator === 0n) return { hit: null, missed };
        passing = { ...passing, probability: hitting };
        continue;
      }
      const matched = this.#test(match, passing, place);
      if (match.kind === "recent" && this.#remembers(match, matched)) {
        passing = rememberedIn(match.list, passing);
      }
      if (!matched) return { hit: null, missed: [...missed, passing] };
    }
    return { hit: passing, missed };
  }

  #remembers(match: RuleMatch & { kind: "recent" }, matched: boolean): boolean {
    return match.action === "set" || (match.action === "update" && matched !== match.not);
  }

  #test(match: Exclude<RuleMatch, { kind: "statistic" }>, walk: Walk, place: RulePlace): boolean {
    if (match.kind === "opaque") {
      const holds = wordsHold(match.words, walk);
      if (holds === undefined) this.#report(unknownWords(match.words.join(" "), place));
      return holds ?? false;
    }
    const holds = this.#holds(match, walk);
    return "not" in match ? holds !== match.not : holds;
  }

  #holds(match: Exclude<RuleMatch, { kind: "statistic" | "opaque" }>, walk: Walk): boolean {
    switch (match.kind) {
      case "comment":
      case "module":
      case "nfacct":
        return true;
      case "protocol":
        return match.protocol === "all" || PROTOCOL_NAMES.get(match.protocol.toLowerCase()) === walk.protocol;
      case "source":
        return this.#contains(match.address, walk.source);
      case "destination":
        return this.#contains(match.address, walk.destination);
      case "inInterface":
        return interfaceMatches(match.name, walk.inInterface);
      case "destinationPort":
        return walk.protocol !== "icmp" && portMatches(match.ports, walk.port);
      case "conntrack":
        return match.states.some((state) => stateHolds(state, walk));
      case "mark":
        return ((walk.mark & match.mask) >>> 0) === match.value;
      case "addrtype":
        return this.#hasType(match.type, match.side === "source" ? walk.source : walk.destination);
      case "recent":
        return this.#recent(match, walk);
      case "physdevIsIn":
        // A packet belongs to the bridge it came through, not to a port of it, unless br_netfilter hands it up early.
        return this.#surroundings.isBridged?.(walk.inInterface, walk.source.family) ?? false;
      case "set":
        return this.#conditions?.isInSet(match, walk) ?? this.#beyond(match);
      case "ipvs":
        return this.#conditions?.goesThroughServer(match, walk) ?? this.#beyond(match);
      case "outInterface": {
        const name = leavesThrough(walk, this.#surroundings);
        return name === undefined ? this.#unseen(match.kind, match.not) : interfaceMatches(match.name, name);
      }
      case "sourcePort":
        return this.#unseen(match.kind, match.not);
      default:
        return match satisfies never;
    }
  }

  #unseen(kind: string, not: boolean): boolean {
    this.#report(`A rule that looks at the ${kind} is not understood and taken as not matching`);
    return not;
  }

  #beyond(match: SetMatch | IpvsMatch): boolean {
    this.#report(`A rule with "-m ${match.kind}" is not understood and taken as not matching`);
    return "not" in match && match.not;
  }

  #contains(address: string, ip: Ip): boolean {
    let cidr = this.#cidrs.get(address);
    if (cidr === undefined) {
      cidr = parseCidr(address.includes("/") ? address : hostCidrText(address));
      this.#cidrs.set(address, cidr);
    }
    if (cidr !== null) return cidrContains(cidr, ip);
    this.#report(`Address "${address}" is not understood and taken as not matching`);
    return false;
  }

  #hasType(type: string, ip: Ip): boolean {
    if (type === "LOCAL") return isNodeAddress(ip, this.#surroundings);
    this.#report(`Address type ${type} is not understood and taken as not matching`);
    return false;
  }

  #recent(match: RuleMatch & { kind: "recent" }, walk: Walk): boolean {
    if (match.action === "set") return true;
    if (walk.remembered.includes(match.list)) return true;
    const seen = this.#surroundings.affinity.get(match.list)?.get(walk.source.text);
    if (seen === undefined) return false;
    return match.seconds === 0 || this.#surroundings.nowSeconds - seen <= match.seconds;
  }
}

/** A process on the node has no incoming interface: nothing matches it, so every negation does. */
function interfaceMatches(pattern: string, name: string): boolean {
  if (name === "") return false;
  return pattern.endsWith("+") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

function portMatches(ports: string, port: number): boolean {
  const [first = "", last = first] = ports.split(":");
  return port >= Number(first || 0) && port <= Number(last || 65535);
}

function stateHolds(state: string, walk: Walk): boolean {
  if (state === "DNAT") return walk.translated;
  if (state === "SNAT") return walk.masquerade;
  return state === walk.state;
}
