/**
 * Rules of iptables, ready for packets: whether a virtual packet meets their conditions, and what they do with it.
 *
 * @module
 */
import { cidrContains, compareIps, type Ip, parseIp } from "../model/ip.ts";
import { markBits } from "../netfilter/canonical_iptables_rule.ts";
import { ipPortEntry, type SavedSet, type SetType } from "../netfilter/ipset.ts";
import type { IptablesRule, RuleMatch, RuleTarget } from "../netfilter/iptables_rule.ts";
import type { VirtualServer } from "../netfilter/ipvs.ts";
import type { NftVerdict } from "../netfilter/nft_rule.ts";
import { parseIptablesRule } from "../netfilter/parse_iptables_rule.ts";
import { type RulePlace, type Statement, unknownWords, type WalkedRule } from "./chain_walk.ts";
import { complement, multiply, type PacketProtocol, probabilityFraction } from "./flow.ts";
import { IPVS_PROTOCOLS } from "./ipvs_schedule.ts";
import {
  isNodeAddress,
  leavesThrough,
  networkOf,
  type PacketContext,
  rememberedIn,
  type Walk,
} from "./packet_walk.ts";

/** A chain of 10,000 rules is parsed once for all walks: what was read does not change any more. */
const PARSED = new WeakMap<readonly string[], readonly WalkedRule[]>();

/** The rules of a chain. One that cannot be parsed matches nothing, which is reported when a packet comes to it. */
export function iptablesRules(rules: readonly string[]): readonly WalkedRule[] {
  const known = PARSED.get(rules);
  if (known !== undefined) return known;
  const parsed = rules.map((text) => ({ text, statements: statementsOf(ruleOf(text)) }));
  PARSED.set(rules, parsed);
  return parsed;
}

function ruleOf(text: string): IptablesRule {
  try {
    return parseIptablesRule(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { matches: [{ kind: "opaque", words: [text] }], target: null };
  }
}

function statementsOf({ matches, target }: IptablesRule): readonly Statement[] {
  return [
    ...matches.map((match): Statement => ({ kind: "iptables", match })),
    ...(target === null ? [{ kind: "hit" } as const] : targetStatements(target)),
  ];
}

/** Targets that only look at the packet or touch what no rule here reads. */
const PASSING_TARGETS: ReadonlySet<string> = new Set([
  "LOG",
  "NFLOG",
  "TRACE",
  "AUDIT",
  "CONNMARK",
  "SECMARK",
]);
const ACCEPT: Statement = { kind: "verdict", verdict: { kind: "accept" } };

function targetStatements(target: RuleTarget): readonly Statement[] {
  switch (target.kind) {
    case "verdict": {
      const kind = target.verdict.toLowerCase();
      return [{ kind: "verdict", verdict: { kind } as NftVerdict }];
    }
    case "reject":
      return [{ kind: "reject", with: target.with }];
    case "setMark": {
      const { value, mask } = markBits(target);
      return [{ kind: "setMark", keep: ~mask >>> 0, flip: value }];
    }
    case "masquerade":
      return [{ kind: "masquerade" }];
    case "dnat": {
      const [, bracketed, plain, port] =
        /^(?:\[([^\]]+)\]|([^:]+|[0-9a-fA-F:]+))(?::(\d+))?$/.exec(target.to) ?? [];
      const ip = parseIp(bracketed ?? plain ?? "");
      return ip === null
        ? [{ kind: "unknown", problem: `Destination "${target.to}" is not understood` }, ACCEPT]
        : [{ kind: "dnat", ip: ip.text, port: port === undefined ? null : Number(port) }];
    }
    case "redirect":
      return [{ kind: "redirect", port: target.port }];
    case "chain":
      if (PASSING_TARGETS.has(target.chain)) return [{ kind: "hit" }];
      if (target.chain === "NOTRACK") return [{ kind: "notrack" }];
      return [{ kind: "verdict", verdict: { kind: target.goto ? "goto" : "jump", chain: target.chain } }];
    case "opaque": {
      const { name, words } = target;
      if (name === "NOTRACK" || (name === "CT" && words.includes("--notrack"))) return [{ kind: "notrack" }];
      if (PASSING_TARGETS.has(name)) return [{ kind: "hit" }];
      return [{ kind: "unknown", problem: `Target "${[name, ...words].join(" ")}" is not understood` }];
    }
    default:
      return target satisfies never;
  }
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

type Match<Kind> = RuleMatch & { readonly kind: Kind };

/** How a history splits at a condition; null: no part of it. */
export interface MatchResult {
  readonly passing: Walk | null;
  readonly missed: Walk | null;
}

/** Evaluates conditions of one packet's path. */
export class IptablesMatcher {
  /** The virtual server that the packet goes through; null: none. */
  through: VirtualServer | null = null;
  readonly #context: PacketContext;
  readonly #sets: ReadonlyMap<string, SavedSet>;

  constructor(context: PacketContext, sets: ReadonlyMap<string, SavedSet>) {
    this.#context = context;
    this.#sets = sets;
  }

  /** Evaluates one condition. What a later one refuses may already have been remembered, as the kernel has it. */
  match(match: RuleMatch, walk: Walk, place: RulePlace): MatchResult {
    if (match.kind === "statistic") {
      const written = probabilityFraction(match.probability);
      const probability = match.not ? complement(written) : written;
      const missing = multiply(walk.probability, complement(probability));
      const hitting = multiply(walk.probability, probability);
      return {
        passing: hitting.numerator === 0n ? null : { ...walk, probability: hitting },
        missed: missing.numerator === 0n ? null : { ...walk, probability: missing },
      };
    }
    const matched = this.#test(match, walk, place);
    const next = match.kind === "recent" && this.#remembers(match, matched)
      ? rememberedIn(match.list, walk)
      : walk;
    return matched ? { passing: next, missed: null } : { passing: null, missed: next };
  }

  #remembers(match: Match<"recent">, matched: boolean): boolean {
    return match.action === "set" || (match.action === "update" && matched !== match.not);
  }

  #test(match: Exclude<RuleMatch, { kind: "statistic" }>, walk: Walk, place: RulePlace): boolean {
    if (match.kind === "opaque") {
      const holds = wordsHold(match.words, walk);
      if (holds === undefined) this.#context.report(unknownWords(match.words.join(" "), place));
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
        return this.#context.hostState.isBridged?.(walk.inInterface, walk.source.family) ?? false;
      case "set":
        return this.#isInSet(match, walk);
      case "ipvs":
        return this.#goesThrough(match);
      case "outInterface": {
        const name = leavesThrough(walk, this.#context.hostState);
        return name === undefined ? this.#unseen(match.kind, match.not) : interfaceMatches(match.name, name);
      }
      case "sourcePort":
        return this.#unseen(match.kind, match.not);
      default:
        return match satisfies never;
    }
  }

  #unseen(kind: string, not: boolean): boolean {
    this.#context.report(`A rule that looks at the ${kind} is not understood and taken as not matching`);
    return not;
  }

  #isInSet({ set: name, directions }: Match<"set">, walk: Walk): boolean {
    const set = this.#sets.get(name);
    if (set !== undefined && set.definition !== null) {
      return setHolds(set.definition.type, set.entries, directions, walk, this.#context);
    }
    const why = set === undefined ? "does not exist" : "cannot be read";
    this.#context.report(`A rule looks into set ${name}, which ${why}`);
    return false;
  }

  #goesThrough({ address, protocol, port }: Match<"ipvs">): boolean {
    const server = this.through;
    return server !== null && parseIp(address)?.text === server.address &&
      IPVS_PROTOCOLS.get(protocol) === server.protocol && String(server.port) === port;
  }

  #contains(address: string, ip: Ip): boolean {
    const cidr = networkOf(this.#context, address);
    if (cidr !== null) return cidrContains(cidr, ip);
    this.#context.report(`Address "${address}" is not understood and taken as not matching`);
    return false;
  }

  #hasType(type: string, ip: Ip): boolean {
    if (type === "LOCAL") return isNodeAddress(ip, this.#context.hostState);
    this.#context.report(`Address type ${type} is not understood and taken as not matching`);
    return false;
  }

  #recent(match: Match<"recent">, walk: Walk): boolean {
    if (match.action === "set") return true;
    if (walk.remembered.includes(match.list)) return true;
    const seen = this.#context.hostState.affinity.get(match.list)?.get(walk.source.text);
    if (seen === undefined) return false;
    return match.seconds === 0 || this.#context.hostState.nowSeconds - seen <= match.seconds;
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

/** True if the packet is in a set of that type; each direction says which side one part of an entry is compared with. */
function setHolds(
  type: SetType,
  entries: ReadonlySet<string>,
  directions: readonly string[],
  walk: Walk,
  context: PacketContext,
): boolean {
  const side = (index: number): Ip => directions[index] === "src" ? walk.source : walk.destination;
  const holds = (network: string, ip: Ip): boolean => {
    const cidr = networkOf(context, network);
    return cidr !== null && cidrContains(cidr, ip);
  };
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
        one.startsWith(`${entry},`) && holds(one.slice(entry.length + 1), side(2))
      );
    default:
      return type satisfies never;
  }
}

/** What the first packet of a connection has set, among the flags of TCP. */
const FIRST_FLAGS: ReadonlySet<string> = new Set(["SYN"]);
const ALL_FLAGS: readonly string[] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

/** One option, e.g. `! --dports 80,443`. */
interface Option {
  readonly not: boolean;
  readonly name: string;
  readonly values: readonly string[];
}

/**
 * Whether a packet meets a condition, e.g. `-m multiport --dports 80,8000:8099`.
 *
 * @returns undefined if that is unknown: the words are not known, or look at what the packet does not say
 */
export function wordsHold(words: readonly string[], walk: Walk): boolean | undefined {
  const module = words[0] === "-m" ? words[1] : undefined;
  const options = optionsOf(module === undefined ? words : words.slice(2));
  let holds = true;
  for (const { not, name, values } of options) {
    const found = optionHolds(`${module ?? ""} ${name}`.trim(), values, walk);
    if (found === undefined) return undefined;
    holds &&= found !== not;
  }
  return options.length === 0 ? undefined : holds;
}

function optionsOf(words: readonly string[]): readonly Option[] {
  const options: { not: boolean; name: string; values: string[] }[] = [];
  let not = false;
  for (const word of words) {
    if (word === "!") not = true;
    else if (word.startsWith("--")) {
      options.push({ not, name: word, values: [] });
      not = false;
    } else options.at(-1)?.values.push(word);
  }
  return options;
}

function optionHolds(name: string, values: readonly string[], walk: Walk): boolean | undefined {
  const [first = "", second = ""] = values;
  switch (name) {
    case "multiport --dports":
      return walk.protocol !== "icmp" && first.split(",").some((ports) => portMatches(ports, walk.port));
    // What the conntrack match was called before.
    case "state --state":
      return first.split(",").includes(walk.state);
    case "iprange --src-range":
      return ipIn(first, walk.source.text);
    case "iprange --dst-range":
      return ipIn(first, walk.destination.text);
    case "--syn":
      return flagsHold("SYN,RST,ACK,FIN", "SYN", walk);
    case "--tcp-flags":
      return flagsHold(first, second, walk);
    default:
      return undefined;
  }
}

function ipIn(range: string, address: string): boolean | undefined {
  const [first = "", last = first] = range.split("-");
  const [from, to, ip] = [parseIp(first), parseIp(last), parseIp(address)];
  if (from === null || to === null || ip === null) return undefined;
  return from.family === ip.family && compareIps(from, ip) <= 0 && compareIps(ip, to) <= 0;
}

/** Only a connection's first packet has flags that are known. */
function flagsHold(mask: string, set: string, { protocol, state }: Walk): boolean | undefined {
  if (protocol !== "tcp") return false;
  if (state !== "NEW") return undefined;
  const named = (text: string): readonly string[] =>
    text === "ALL" ? ALL_FLAGS : text === "NONE" ? [] : text.split(",");
  const wanted = new Set(named(set));
  return named(mask).every((flag) => wanted.has(flag) === FIRST_FLAGS.has(flag));
}
