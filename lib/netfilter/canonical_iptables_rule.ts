/**
 * Canonical form of iptables rules: a rule as written and as `iptables-save` prints it compare equal.
 *
 * @module
 */
import { hostCidrText, parseCidr, parseIp } from "../model/ip.ts";
import {
  type IptablesRule,
  onlyValue,
  parseIptablesRule,
  parseMark,
  PROTOCOL_MODULES,
  renderIptablesRule,
  type RuleMatch,
  type RuleOption,
  type RuleTarget,
  WHOLE_MASK,
} from "./iptables_rule.ts";

const TRANSPORT_PROTOCOLS: ReadonlySet<string> = new Set(["tcp", "udp", "sctp"]);
const PROTOCOL_NAMES: ReadonlyMap<string, string> = new Map([
  ["1", "icmp"],
  ["6", "tcp"],
  ["17", "udp"],
  ["58", "ipv6-icmp"],
  ["icmpv6", "ipv6-icmp"],
  ["132", "sctp"],
]);
const DEFAULT_REJECTS: ReadonlySet<string> = new Set(["icmp-port-unreachable", "icmp6-port-unreachable"]);

/** Canonical order of conditions, by module or option; others follow in their own order: they have side effects or are unknown. */
const RANKS: ReadonlyMap<string, number> = new Map(
  [
    ...["comment", ...PROTOCOL_MODULES, "-p", "-s", "-d", "-i", "-o", "--sport", "--dport"],
    ...["addrtype", "mark", "conntrack"],
  ].map((name, rank) => [name, rank]),
);
/** Modules whose options may be written in any order. */
const UNORDERED: ReadonlySet<string> = new Set(["statistic", "recent", "ipvs"]);

function rankOf({ module, options: [option] }: RuleMatch): number {
  return RANKS.get(module === "" ? option?.name ?? "" : module) ?? RANKS.size;
}

function canonicalAddress(text: string): string {
  const cidr = parseCidr(text.includes("/") ? text : hostCidrText(text));
  if (cidr === null) return text;
  const wholeAddress = cidr.prefixLength === (cidr.family === "IPv4" ? 32 : 128);
  return wholeAddress ? cidr.text.slice(0, cidr.text.lastIndexOf("/")) : cidr.text;
}

/** Name of a protocol, given its name or number as in a rule. */
export function canonicalProtocol(text: string): string {
  return PROTOCOL_NAMES.get(text.toLowerCase()) ?? text.toLowerCase();
}

function hex(value: number): string {
  return `0x${(value >>> 0).toString(16).padStart(8, "0")}`;
}

/** A mark match as value/mask: the kernel compares `mark & mask` with the value as given. */
function canonicalMark(text: string): string {
  const mark = parseMark(text);
  return mark === null ? text : `${hex(mark.value)}/${hex(mark.mask)}`;
}

/** The probability as the kernel stores it: in 31 bits, printed by `iptables-save` with eleven decimals. */
function keptProbability(text: string): string {
  const steps = 2 ** 31;
  return (Math.round(Number(text) * steps) / steps).toFixed(11);
}

/** An IPv6 `[address]:port` with the address as the kernel prints it; other destinations unchanged. */
function canonicalDestination(to: string): string {
  const [, address, rest] = /^\[([^\]]+)\](.*)$/.exec(to) ?? [];
  const ip = address === undefined ? null : parseIp(address);
  return ip === null ? to : `[${ip.text}]${rest}`;
}

/** Canonical form of an option's first value, by option. */
const VALUES: ReadonlyMap<string, (value: string) => string> = new Map([
  ["-s", canonicalAddress],
  ["-d", canonicalAddress],
  ["-p", canonicalProtocol],
  ["--ctstate", (states: string) => states.split(",").sort().join(",")],
  ["--mark", canonicalMark],
  ["--probability", keptProbability],
  ["--vaddr", canonicalAddress],
  ["--vproto", canonicalProtocol],
  ["--to-destination", canonicalDestination],
]);
/** Values that `iptables-save` adds by itself, or that restrict nothing; any other value changes the meaning. */
const ADDED: ReadonlyMap<string, RegExp> = new Map([
  ["-s", /\/0$/],
  ["-d", /\/0$/],
  ["-p", /^(all|0)$/],
  ["--rsource", /^$/],
  ["--mask", WHOLE_MASK],
  ["--name", /^DEFAULT$/],
]);

function canonicalOptions(module: string, options: readonly RuleOption[]): readonly RuleOption[] {
  const canonical: RuleOption[] = [];
  for (const option of options) {
    const { not, name } = option;
    const [first = "", ...others] = option.values;
    const make = option.values.length === 0 ? undefined : VALUES.get(name);
    const value = make === undefined ? first : make(first);
    const isAdded = (module === "" || module === "recent") && !not && ADDED.get(name)?.test(value) === true;
    if (!isAdded) canonical.push(make === undefined ? option : { not, name, values: [value, ...others] });
  }
  return UNORDERED.has(module) ? canonical.sort((a, b) => a.name < b.name ? -1 : 1) : canonical;
}

function canonicalMatch({ module, options: written }: RuleMatch): readonly RuleMatch[] {
  // Loading a protocol's module matches nothing; `-p` loads it again in its canonical place.
  if (TRANSPORT_PROTOCOLS.has(module)) return [];
  const options = canonicalOptions(module, written);
  // Each type gets a match of its own, in one module or two; unknown options may belong to either type.
  const isOfTypes = module === "addrtype" && options.every(({ name }) => /^--(src|dst)-type$/.test(name));
  if (isOfTypes) return options.map((option) => ({ module, options: [option] }));
  if (module !== "") return [{ module, options }];
  const protocol = onlyValue(options.filter(({ not }) => !not), "-p") ?? "";
  const loaded = TRANSPORT_PROTOCOLS.has(protocol) ? [{ module: protocol, options: [] }] : [];
  return options.length === 0 ? [] : [...loaded, { module, options }];
}

/** Bits of a MARK target, as the kernel stores it: `mark = (mark & ~mask) ^ value`; null if they cannot be read. */
export function markBits(
  { name, options }: RuleTarget,
): { readonly value: number; readonly mask: number } | null {
  const option = options[0]?.name ?? "";
  const mark = name === "MARK" ? parseMark(onlyValue(options, option) ?? "") : null;
  if (mark === null) return null;
  const { value, mask } = mark;
  switch (option) {
    case "--or-mark":
      return { value, mask: value };
    case "--xor-mark":
      return { value, mask: 0 };
    case "--and-mark":
      return { value: 0, mask: ~value >>> 0 };
    case "--set-mark":
      return { value, mask: (value | mask) >>> 0 };
    case "--set-xmark":
      return mark;
    default:
      return null;
  }
}

function canonicalTarget(target: RuleTarget | null): RuleTarget | null {
  if (target === null) return null;
  const { name, options } = target;
  if (name === "REJECT" && DEFAULT_REJECTS.has(onlyValue(options, "--reject-with") ?? "")) {
    return { ...target, options: [] };
  }
  const bits = markBits(target);
  if (bits === null) return { ...target, options: canonicalOptions(name, options) };
  const values = [`${hex(bits.value)}/${hex(bits.mask)}`];
  return { ...target, options: [{ not: false, name: "--set-xmark", values }] };
}

/**
 * Yields the rule in one fixed shape: conditions in one order, addresses without a prefix length that says nothing, marks as
 * 32-bit numbers, probabilities as the kernel rounds them, defaults left out.
 */
function canonicalIptablesRule({ matches, target }: IptablesRule): IptablesRule {
  return {
    matches: matches.flatMap(canonicalMatch).sort((a, b) => rankOf(a) - rankOf(b)),
    target: canonicalTarget(target),
  };
}

/**
 * The canonical text of a rule text: equal for a rule as written and as saved, and never for two rules that differ to the kernel.
 * (Options this reader does not know are compared as words, so two spellings of such a rule may still differ.)
 *
 * @throws {SyntaxError} if the text is no rule
 */
export function canonicalRuleText(text: string): string {
  return renderIptablesRule(canonicalIptablesRule(parseIptablesRule(text)));
}

/** As {@linkcode canonicalRuleText}, or null for a rule that cannot be read, and so is not kproxy's. */
export function readableRuleText(text: string): string | null {
  try {
    return canonicalRuleText(text);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
