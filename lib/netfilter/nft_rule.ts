/**
 * An nftables rule as data: the part of nft's language that rules of proxies use.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";

/** Types of keys and values of sets and maps that are understood. */
export type NftType =
  | "ipv4_addr"
  | "ipv6_addr"
  | "inet_proto"
  | "inet_service"
  | "integer"
  | "ifname"
  | "word";

/** Fields of a packet: type, name for people, and spellings in rules, where `IP` stands for `ip` or `ip6`. */
const EXPRESSIONS = {
  source: ["address", "source", "IP saddr"],
  destination: ["address", "destination", "IP daddr"],
  // The connection's destination before any translation.
  originalDestination: ["address", "original destination", "ct original IP daddr"],
  originalPort: ["inet_service", "original port", "ct original proto-dst"],
  protocol: ["inet_proto", "protocol", "meta l4proto"],
  // By index (`iif`), which nft prints as the name, or by name (`iifname`).
  inInterface: ["ifname", "incoming interface", "iif", "iifname", "meta iif", "meta iifname"],
  outInterface: ["ifname", "outgoing interface", "oif", "oifname", "meta oif", "meta oifname"],
  state: ["word", "state", "ct state"],
  status: ["word", "status", "ct status"],
  // `original`: from the side that opened the connection.
  direction: ["word", "direction", "ct direction"],
  sourceType: ["word", "type of the source", "fib saddr type"],
  destinationType: ["word", "type of the destination", "fib daddr type"],
} as const;

/** Kinds of expressions that have no parameters. */
export type PlainKind = keyof typeof EXPRESSIONS;

const PLAIN_KINDS = Object.keys(EXPRESSIONS) as readonly PlainKind[];

/** Kinds whose values are keywords, with the keywords that are understood. */
export const KNOWN_WORDS: readonly (readonly [PlainKind, known: readonly string[]])[] = [
  ["state", ["new", "established", "related", "invalid", "untracked"]],
  ["status", ["dnat", "snat"]],
  ["direction", ["original", "reply"]],
  ["sourceType", ["local"]],
  ["destinationType", ["local"]],
];

/** An expression: reads a field of the packet, or a random number. */
export type NftExpression =
  | { readonly kind: PlainKind }
  /** `only`: the protocol that nft matches implicitly, as for `tcp dport`; null for `th dport`. */
  | { readonly kind: "destinationPort"; readonly only: "tcp" | "udp" | "sctp" | null }
  /** `numgen random mod N`. */
  | { readonly kind: "random"; readonly modulus: number };

/** A key: one or more expressions, concatenated by dots. */
export type NftKey = readonly NftExpression[];

/** Elements: key → value, as written; `""` in a set. */
export type NftElements = ReadonlyMap<string, string>;

/** The set or map of a lookup: anonymous (inline) or named. */
export type NftOperand =
  | { readonly kind: "named"; readonly name: string }
  | { readonly kind: "inline"; readonly elements: NftElements };

/** Verdict of a rule for packets that match it. */
export type NftVerdict =
  | { readonly kind: "accept" | "drop" | "return" | "continue" }
  | { readonly kind: "jump" | "goto"; readonly chain: string };

/** One statement or match of a rule; a rule is evaluated from left to right. */
export type NftStatement =
  | { readonly kind: "match"; readonly not: boolean; readonly key: NftKey; readonly operand: NftOperand }
  /** Matches if `(mark & mask) == value`. */
  | { readonly kind: "mark"; readonly not: boolean; readonly mask: number; readonly value: number }
  /** Sets the mark to `(mark & keep) ^ flip`. */
  | { readonly kind: "setMark"; readonly keep: number; readonly flip: number }
  | { readonly kind: "verdict"; readonly verdict: NftVerdict }
  | { readonly kind: "verdictMap"; readonly key: NftKey; readonly operand: NftOperand }
  /** `port` null: the packet's own port. */
  | { readonly kind: "dnat"; readonly ip: string; readonly port: number | null }
  /** DNAT by a map whose values are `ip . port` or `ip`. */
  | { readonly kind: "dnatMap"; readonly key: NftKey; readonly operand: NftOperand }
  | { readonly kind: "masquerade" }
  | { readonly kind: "reject"; readonly with: string | null }
  /** Adds the source to a set and restarts its timeout (`update`), or only adds it (`add`). */
  | { readonly kind: "remember"; readonly set: string; readonly refresh: boolean }
  /** Exempts the packet from connection tracking, if conntrack has not seen it yet. */
  | { readonly kind: "notrack" }
  /** A counter, log or comment; decides nothing. */
  | { readonly kind: "note" }
  /** The rest of a rule of another program, from its first unknown word on. */
  | { readonly kind: "unread"; readonly text: string };

/** Type of an expression's value. */
export function typeOfExpression({ kind }: NftExpression, family: IpFamily): NftType {
  if (kind === "destinationPort") return "inet_service";
  if (kind === "random") return "integer";
  const [type] = EXPRESSIONS[kind];
  return type !== "address" ? type : family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
}

/** Spellings of each kind in rules of a family, each as a list of words. */
export function wordsToAsk(family: IpFamily): readonly (readonly [PlainKind, readonly string[]])[] {
  const ip = family === "IPv4" ? "ip" : "ip6";
  return PLAIN_KINDS.flatMap((kind) => {
    const [, , ...asked] = EXPRESSIONS[kind];
    return asked.map((text) => [kind, text.replace("IP", ip).split(" ")] as const);
  });
}

/** Description of an expression's value, for people. */
export function expressionText(one: NftExpression): string {
  if (one.kind === "random") return `a random number below ${one.modulus}`;
  if (one.kind === "destinationPort") return one.only === null ? "port" : `${one.only} port`;
  return EXPRESSIONS[one.kind][1];
}
