/**
 * Rules of iptables, ready for virtual packets: whether a packet matches their conditions, and what targets do.
 *
 * @module
 */
import { cidrContains, compareIps, type Ip, parseIp } from "../model/ip.ts";
import { canonicalProtocol, markBits } from "../netfilter/canonical_iptables_rule.ts";
import { ipPortEntry, type SavedSet, type SetType } from "../netfilter/ipset.ts";
import {
  type IptablesRule,
  matchWords,
  onlyValue,
  optionWords,
  parseIptablesRule,
  parseMark,
  PROTOCOL_MODULES,
  type RuleMatch,
  type RuleOption,
  type RuleTarget,
  WHOLE_MASK,
} from "../netfilter/iptables_rule.ts";
import type { VirtualServer } from "../netfilter/ipvs.ts";
import { type RulePlace, type Statement, unknownWords, type WalkedRule } from "./chain_walk.ts";
import { complement, multiply, probabilityFraction, serviceProtocol } from "./flow.ts";
import {
  isNodeAddress,
  leavesThrough,
  networkOf,
  type PacketContext,
  rememberedIn,
  type Walk,
} from "./packet_walk.ts";

/** Parsed rules by chain, shared by all walks: a chain may have 10,000, and does not change any more. */
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
    return { matches: [{ module: "", options: [{ not: false, name: text, values: [] }] }], target: null };
  }
}

function statementsOf({ matches, target }: IptablesRule): readonly Statement[] {
  const statements: Statement[] = matches.flatMap(conditionsOf);
  if (target === null) statements.push({ kind: "hit" });
  else statements.push(...targetStatements(target));
  return statements;
}

/** Targets that only inspect the packet, or change what no rule here reads. */
const PASSING_TARGETS: ReadonlySet<string> = new Set([
  "LOG",
  "NFLOG",
  "TRACE",
  "AUDIT",
  "CONNMARK",
  "SECMARK",
]);
const VERDICTS: ReadonlyMap<string, "accept" | "drop" | "return"> = new Map([
  ["ACCEPT", "accept"],
  ["DROP", "drop"],
  ["RETURN", "return"],
]);
const ACCEPT: Statement = { kind: "verdict", verdict: { kind: "accept" } };

/** Statements of a target; a target of which not all options are known does nothing, which is reported. */
export function targetStatements(target: RuleTarget): readonly Statement[] {
  const { name, goto, options } = target;
  const chain: Statement = { kind: "verdict", verdict: { kind: goto ? "goto" : "jump", chain: name } };
  if (name.startsWith("KUBE-") && options.length === 0) return [chain];
  const words = optionWords(options);
  const verdict = VERDICTS.get(name);
  if (verdict !== undefined) return [{ kind: "verdict", verdict: { kind: verdict } }];
  if (PASSING_TARGETS.has(name)) return [{ kind: "hit" }];
  if (name === "NOTRACK" || (name === "CT" && words.includes("--notrack"))) return [{ kind: "notrack" }];
  const bits = markBits(target);
  if (bits !== null) return [{ kind: "setMark", keep: ~bits.mask >>> 0, flip: bits.value }];
  if (name === "REJECT") {
    const type = onlyValue(options, "--reject-with");
    if (type !== null || options.length === 0) return [{ kind: "reject", with: type }];
  }
  if (name === "MASQUERADE" && ["", "--random-fully"].includes(words.join(" "))) {
    return [{ kind: "masquerade" }];
  }
  if (name === "DNAT") {
    const to = onlyValue(options.slice(0, 1), "--to-destination");
    if (to !== null) return translation(to);
  }
  if (name === "REDIRECT") {
    // Ranges of ports and random ports are not simulated.
    const port = options.length === 0 ? "0" : onlyValue(options, "--to-ports") ?? "";
    if (/^(0|[1-9]\d{0,4})$/.test(port)) return [{ kind: "redirect", port: Number(port) }];
  }
  return options.length > 0 || HAS_OPTIONS.has(name)
    ? [{ kind: "unknown", problem: `Target "${[name, ...words].join(" ")}" is not understood` }]
    : [chain];
}

/** Targets with options: no chain names. */
const HAS_OPTIONS: ReadonlySet<string> = new Set(["MARK", "DNAT"]);

function translation(to: string): readonly Statement[] {
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+|[0-9a-fA-F:]+))(?::(\d+))?$/.exec(to) ?? [];
  const ip = parseIp(bracketed ?? plain ?? "");
  return ip === null
    ? [{ kind: "unknown", problem: `Destination "${to}" is not understood` }, ACCEPT]
    : [{ kind: "dnat", ip: ip.text, port: port === undefined ? null : Number(port) }];
}

/** How a condition splits a branch; null: no part of it. */
export interface MatchResult {
  readonly passing: Walk | null;
  readonly missed: Walk | null;
}

/** True if the packet satisfies an option; undefined if that is unknown. */
type Holds = (value: string, walk: Walk, matcher: IptablesMatcher, second: string) => boolean | undefined;

/** Matches every packet. */
const ALWAYS: Holds = () => true;

/** Matchers by module and option. Those of `recent` and `statistic` are evaluated together, by {@linkcode IptablesMatcher}. */
const OPTIONS: ReadonlyMap<string, ReadonlyMap<string, Holds>> = byModule({
  "": {
    "-p": (name, walk) => name === "all" || isProtocol(name, walk),
    "-s": (address, walk, { context }) => contains(address, walk.source, context),
    "-d": (address, walk, { context }) => contains(address, walk.destination, context),
    "-i": (name, walk) => interfaceMatches(name, walk.inInterface),
    "-o": (name, walk, { context: { hostState } }) => {
      const through = leavesThrough(walk, hostState);
      return through === undefined ? undefined : interfaceMatches(name, through);
    },
    "--dport": (ports, walk) => walk.protocol !== "icmp" && portMatches(ports, walk.port),
    "--syn": (_, walk) => flagsHold("SYN,RST,ACK,FIN", "SYN", walk),
    "--tcp-flags": (mask, walk, _, set) => flagsHold(mask, set, walk),
  },
  comment: { "--comment": ALWAYS },
  nfacct: { "--nfacct-name": ALWAYS },
  multiport: {
    "--dports": (list, walk) =>
      walk.protocol !== "icmp" && list.split(",").some((ports) => portMatches(ports, walk.port)),
  },
  conntrack: { "--ctstate": (states, walk) => states.split(",").some((state) => stateHolds(state, walk)) },
  // The conntrack match's former name.
  state: { "--state": (states, walk) => states.split(",").includes(walk.state) },
  mark: {
    "--mark": (text, walk) => {
      const mark = parseMark(text);
      return mark === null ? undefined : ((walk.mark & mark.mask) >>> 0) === mark.value;
    },
  },
  addrtype: {
    "--src-type": (type, walk, { context }) => hasType(type, walk.source, context),
    "--dst-type": (type, walk, { context }) => hasType(type, walk.destination, context),
  },
  physdev: {
    // A packet belongs to its bridge, not to a port of the bridge, unless br_netfilter passes it up early.
    "--physdev-is-in": (_, walk, { context: { hostState } }) =>
      hostState.isBridged?.(walk.inInterface, walk.source.family) ?? false,
  },
  set: { "--match-set": isInSet },
  ipvs: {
    "--vaddr": (address, _, { through }) => through !== null && parseIp(address)?.text === through.address,
    "--vproto": (protocol, _, { through }) => canonicalProtocol(protocol).toUpperCase() === through?.protocol,
    "--vport": (port, _, { through }) => port === String(through?.port),
  },
  iprange: {
    "--src-range": (range, walk) => ipIn(range, walk.source.text),
    "--dst-range": (range, walk) => ipIn(range, walk.destination.text),
  },
  statistic: { "--mode": () => true, "--probability": () => true },
  recent: Object.fromEntries(
    ["name", "set", "rcheck", "update", "remove", "seconds", "reap", "mask", "rsource"]
      .map((option) => [`--${option}`, () => true]),
  ),
});
/** Modules whose options must all be given. */
const WHOLE: ReadonlySet<string> = new Set(["statistic", "ipvs"]);

function byModule(
  modules: Readonly<Record<string, Readonly<Record<string, Holds>>>>,
): ReadonlyMap<string, ReadonlyMap<string, Holds>> {
  return new Map(
    Object.entries(modules).map(([module, options]) => [module, new Map(Object.entries(options))]),
  );
}

/** A condition that can be evaluated; small, because a node may have 300,000 rules. */
export type KnownCondition =
  | {
    readonly kind: "option";
    readonly holds: Holds;
    readonly not: boolean;
    readonly module: string;
    readonly name: string;
    readonly value: string;
    readonly second: string;
  }
  | { readonly kind: "chance"; readonly not: boolean; readonly probability: string }
  | RecentCondition;

/** A condition of any rule; `unread`: the simulator does not know all of its options. */
export type Condition = KnownCondition | { readonly kind: "unread"; readonly text: string };

/** Match of module `recent`: looks the packet's source up in an affinity list, or writes it there. */
interface RecentCondition {
  readonly kind: "recent";
  readonly action: string;
  readonly not: boolean;
  readonly list: string;
  readonly seconds: number;
}

/** Conditions of a match, all of which must hold; none if the match restricts nothing, e.g. a comment. */
export function conditionsOf(match: RuleMatch): readonly Condition[] {
  const { module, options } = match;
  const known = OPTIONS.get(module);
  if (options.length === 0 && PROTOCOL_MODULES.has(module)) return [];
  const isKnown = options.length > 0 && options.every(({ name }) => known?.has(name) === true) &&
    (!WHOLE.has(module) || options.length === known?.size);
  if (!isKnown) return unread(match);
  if (module === "statistic") {
    const { not, values: [probability = ""] } = options.find(({ name }) => name === "--probability")!;
    return /^\d*\.?\d+$/.test(probability) ? [{ kind: "chance", not, probability }] : unread(match);
  }
  if (module === "recent") {
    // With another mask the list holds networks, not addresses.
    const { values: [mask = ""] } = options.find(({ name }) => name === "--mask") ?? { values: [] };
    return mask === "" || WHOLE_MASK.test(mask) ? [recentOf(options)] : unread(match);
  }
  const conditions: Condition[] = [];
  for (const { not, name, values } of options) {
    const holds = known!.get(name)!;
    if (holds === ALWAYS) continue;
    conditions.push({
      kind: "option",
      holds,
      not,
      module,
      name,
      value: values[0] ?? "",
      second: values[1] ?? "",
    });
  }
  return conditions;
}

function unread(match: RuleMatch): readonly Condition[] {
  return [{ kind: "unread", text: matchWords(match).join(" ") }];
}

function recentOf(options: readonly RuleOption[]): RecentCondition {
  const valueOf = (wanted: string): string | undefined =>
    options.find(({ name }) => name === wanted)?.values[0];
  const { name = "--rcheck", not = false } =
    options.find(({ name }) => /^--(set|rcheck|update|remove)$/.test(name)) ?? {};
  const [list, seconds] = [valueOf("--name") ?? "DEFAULT", Number(valueOf("--seconds") ?? 0)];
  return { kind: "recent", action: name.slice(2), not, list, seconds };
}

/** Evaluates match conditions on one packet's path. */
export class IptablesMatcher {
  /** The virtual server that IPVS scheduled the packet to; null: none. */
  through: VirtualServer | null = null;
  readonly context: PacketContext;
  readonly sets: ReadonlyMap<string, SavedSet>;

  constructor(context: PacketContext, sets: ReadonlyMap<string, SavedSet>) {
    this.context = context;
    this.sets = sets;
  }

  /** Evaluates one condition. As in the kernel, `recent` may store the source before a later condition fails. */
  match(condition: KnownCondition, walk: Walk, place: RulePlace): MatchResult {
    switch (condition.kind) {
      case "chance":
        return byChance(condition.probability, condition.not, walk);
      case "recent":
        return recently(condition, walk, this.context);
      case "option": {
        const { holds, not, value, second } = condition;
        const found = holds(value, walk, this, second);
        if (found !== undefined) {
          return found !== not ? { passing: walk, missed: null } : { passing: null, missed: walk };
        }
        const option = { not, name: condition.name, values: [value, second].filter((one) => one !== "") };
        const words = matchWords({ module: condition.module, options: [option] });
        this.context.report(unknownWords(words.join(" "), place));
        return { passing: null, missed: walk };
      }
    }
  }
}

function byChance(text: string, not: boolean, walk: Walk): MatchResult {
  const written = probabilityFraction(text);
  const probability = not ? complement(written) : written;
  const missing = multiply(walk.probability, complement(probability));
  const hitting = multiply(walk.probability, probability);
  return {
    passing: hitting.numerator === 0n ? null : { ...walk, probability: hitting },
    missed: missing.numerator === 0n ? null : { ...walk, probability: missing },
  };
}

function recently(
  { action, not, list, seconds }: RecentCondition,
  walk: Walk,
  { hostState }: PacketContext,
): MatchResult {
  const seen = hostState.affinity.get(list)?.get(walk.source.text);
  const isFresh = seen !== undefined && (seconds === 0 || hostState.nowSeconds - seen <= seconds);
  const found = action === "set" || walk.remembered.includes(list) || isFresh;
  const next = action === "set" || action === "update" && found ? rememberedIn(list, walk) : walk;
  return found !== not ? { passing: next, missed: null } : { passing: null, missed: next };
}

function contains(address: string, ip: Ip, context: PacketContext): boolean | undefined {
  const cidr = networkOf(context, address);
  return cidr === null ? undefined : cidrContains(cidr, ip);
}

function hasType(type: string, ip: Ip, { hostState }: PacketContext): boolean | undefined {
  return type === "LOCAL" ? isNodeAddress(ip, hostState) : undefined;
}

function isInSet(
  name: string,
  walk: Walk,
  { context, sets }: IptablesMatcher,
  directions: string,
): boolean {
  const set = sets.get(name);
  if (set !== undefined && set.definition !== null) {
    return setHolds(set.definition.type, set.entries, directions.split(","), walk, context);
  }
  const why = set === undefined ? "does not exist" : "cannot be read";
  context.report(`A rule looks into set ${name}, which ${why}`);
  return false;
}

/** True if the packet has that protocol; ICMP stands for that of either family. */
function isProtocol(name: string, { protocol }: Walk): boolean {
  const known = canonicalProtocol(name);
  return (known === "ipv6-icmp" ? "icmp" : known) === protocol;
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

/** True if the packet is in a set of that type; `directions` names the side (`src`, `dst`) for each part of an entry. */
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
  const protocol = serviceProtocol(walk.protocol);
  if (protocol === null) return false;
  // Bitmaps store no protocol, but rules use them for TCP and UDP only.
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

/** TCP flags of a connection's first packet. */
const FIRST_FLAGS: ReadonlySet<string> = new Set(["SYN"]);
const ALL_FLAGS: readonly string[] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

function ipIn(range: string, address: string): boolean | undefined {
  const [first = "", last = first] = range.split("-");
  const [from, to, ip] = [parseIp(first), parseIp(last), parseIp(address)];
  if (from === null || to === null || ip === null) return undefined;
  return from.family === ip.family && compareIps(from, ip) <= 0 && compareIps(ip, to) <= 0;
}

/** The flags are only known of a connection's first packet; undefined: unknown. */
function flagsHold(mask: string, set: string, { protocol, state }: Walk): boolean | undefined {
  if (protocol !== "tcp") return false;
  if (state !== "NEW") return undefined;
  const named = (text: string): readonly string[] =>
    text === "ALL" ? ALL_FLAGS : text === "NONE" ? [] : text.split(",");
  const wanted = new Set(named(set));
  return named(mask).every((flag) => wanted.has(flag) === FIRST_FLAGS.has(flag));
}
