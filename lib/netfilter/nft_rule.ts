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

/** An expression: reads a field of the packet, or a random number. */
export type NftExpression =
  | { readonly kind: "source" | "destination" }
  | { readonly kind: "protocol" }
  /** `only`: the protocol that nft matches implicitly, as for `tcp dport`; null for `th dport`. */
  | { readonly kind: "destinationPort"; readonly only: "tcp" | "udp" | "sctp" | null }
  | { readonly kind: "inInterface" | "outInterface" }
  /** Original destination of the connection, before any NAT: `ct original ip daddr`, `ct original proto-dst`. */
  | { readonly kind: "originalDestination" | "originalPort" }
  /** A property whose values are words. */
  | { readonly kind: NftFact }
  /** `numgen random mod N`. */
  | { readonly kind: "random"; readonly modulus: number };

/**
 * Properties of a packet in connection tracking and routing: `ct state`, `ct status`; `ct direction` (`original`: from the
 * connection's client); `fib saddr type`, `fib daddr type`.
 */
export type NftFact = "state" | "status" | "direction" | "sourceType" | "destinationType";

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

/** Types of expressions; `address`: of the packet's family. */
const TYPES: Readonly<Record<NftExpression["kind"], NftType | "address">> = {
  source: "address",
  destination: "address",
  originalDestination: "address",
  protocol: "inet_proto",
  destinationPort: "inet_service",
  originalPort: "inet_service",
  inInterface: "ifname",
  outInterface: "ifname",
  state: "word",
  status: "word",
  direction: "word",
  sourceType: "word",
  destinationType: "word",
  random: "integer",
};

/** Type of an expression's value. */
export function typeOfExpression({ kind }: NftExpression, family: IpFamily): NftType {
  const type = TYPES[kind];
  return type !== "address" ? type : family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
}
