/**
 * One shape for a rule as written and the same rule as `iptables-save` prints it, so that the two compare equal.
 *
 * @module
 */
import { hostCidrText, parseCidr, parseIp } from "../model/ip.ts";
import { type IptablesRule, renderIptablesRule, type RuleMatch, type RuleTarget } from "./iptables_rule.ts";
import { parseIptablesRule } from "./parse_iptables_rule.ts";

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

/** Where each condition stands; those with the same number keep their order, because they have side effects or are unknown. */
const RANKS: Readonly<Record<RuleMatch["kind"], number>> = {
  comment: 0,
  module: 1,
  protocol: 2,
  source: 3,
  destination: 4,
  inInterface: 5,
  outInterface: 6,
  sourcePort: 7,
  destinationPort: 8,
  addrtype: 9,
  mark: 10,
  conntrack: 11,
  statistic: 12,
  recent: 12,
  nfacct: 12,
  set: 12,
  physdevIsIn: 12,
  ipvs: 12,
  opaque: 12,
};

function canonicalAddress(text: string): string {
  const cidr = parseCidr(text.includes("/") ? text : hostCidrText(text));
  if (cidr === null) return text;
  const wholeAddress = cidr.prefixLength === (cidr.family === "IPv4" ? 32 : 128);
  return wholeAddress ? cidr.text.slice(0, cidr.text.lastIndexOf("/")) : cidr.text;
}

/** The probability the kernel keeps: 31 bits, printed by `iptables-save` with eleven decimals. */
function keptProbability(text: string): string {
  const steps = 2 ** 31;
  return (Math.round(Number(text) * steps) / steps).toFixed(11);
}

function canonicalMatch(match: RuleMatch): readonly RuleMatch[] {
  switch (match.kind) {
    case "module":
      // Loading a protocol's options matches nothing; `protocol` brings it back where it belongs.
      return TRANSPORT_PROTOCOLS.has(match.name) ? [] : [match];
    case "protocol": {
      const protocol = PROTOCOL_NAMES.get(match.protocol.toLowerCase()) ?? match.protocol.toLowerCase();
      if (protocol === "all" || protocol === "0") return match.not ? [match] : [];
      const named: RuleMatch = { ...match, protocol };
      if (match.not || !TRANSPORT_PROTOCOLS.has(protocol)) return [named];
      return [{ kind: "module", name: protocol }, named];
    }
    case "source":
    case "destination": {
      const address = canonicalAddress(match.address);
      return address.endsWith("/0") && !match.not ? [] : [{ ...match, address }];
    }
    case "conntrack":
      return [{ ...match, states: [...match.states].sort() }];
    case "mark":
      // The kernel compares `mark & mask` with the value as it is.
      return [{ ...match, value: match.value >>> 0, mask: match.mask >>> 0 }];
    case "ipvs":
      return [{
        ...match,
        address: canonicalAddress(match.address),
        protocol: PROTOCOL_NAMES.get(match.protocol) ?? match.protocol.toLowerCase(),
      }];
    case "statistic":
      return [{ ...match, probability: keptProbability(match.probability) }];
    default:
      return [match];
  }
}

/** What the kernel keeps of a MARK target: `mark = (mark & ~mask) ^ value`. */
export function markBits(target: RuleTarget & { kind: "setMark" }): { value: number; mask: number } {
  const { value, mask } = target;
  switch (target.operation) {
    case "or":
      return { value, mask: value };
    case "xor":
      return { value, mask: 0 };
    case "and":
      return { value: 0, mask: ~value >>> 0 };
    case "set":
      return { value, mask: (value | mask) >>> 0 };
    case "setXmark":
      return { value, mask };
    default:
      return target.operation satisfies never;
  }
}

/** `[address]:port` of IPv6 with the address as the kernel prints it; everything else as it is. */
function canonicalDestination(to: string): string {
  const [, address, rest] = /^\[([^\]]+)\](.*)$/.exec(to) ?? [];
  const ip = address === undefined ? null : parseIp(address);
  return ip === null ? to : `[${ip.text}]${rest}`;
}

function canonicalTarget(target: RuleTarget | null): RuleTarget | null {
  if (target?.kind === "reject" && target.with !== null && DEFAULT_REJECTS.has(target.with)) {
    return { kind: "reject", with: null };
  }
  if (target?.kind === "dnat") return { ...target, to: canonicalDestination(target.to) };
  if (target?.kind !== "setMark") return target;
  const { value, mask } = markBits(target);
  const all = 0xffffffff;
  if (value !== 0 && value === mask) return { kind: "setMark", operation: "or", value, mask: all };
  if (mask === 0) return { kind: "setMark", operation: "xor", value, mask: all };
  return { kind: "setMark", operation: "setXmark", value, mask };
}

/**
 * Yields the rule in one fixed shape: conditions in one order, addresses without a prefix length that says nothing, marks as
 * 32-bit numbers, probabilities as the kernel rounds them, defaults left out.
 */
function canonicalIptablesRule(rule: IptablesRule): IptablesRule {
  const matches = rule.matches.flatMap(canonicalMatch);
  return {
    matches: matches.toSorted((a, b) => RANKS[a.kind] - RANKS[b.kind]),
    target: canonicalTarget(rule.target),
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

/** As {@linkcode canonicalRuleText}, or null if it is no rule that we can read, and so none of ours. */
export function readableRuleText(text: string): string | null {
  try {
    return canonicalRuleText(text);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
