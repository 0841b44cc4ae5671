/**
 * Words of an nftables rule as data: the part of nft's language that rules of proxies are written in.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";

/** The types that keys and values of sets and maps have here. */
export type NftType =
  | "ipv4_addr"
  | "ipv6_addr"
  | "inet_proto"
  | "inet_service"
  | "integer"
  | "ifname"
  | "word";

/** Something that is read from the packet, or chosen. */
export type NftExpression =
  | { readonly kind: "source" | "destination" }
  | { readonly kind: "protocol" }
  /** `only`: nft adds a condition on the protocol by itself, as for `tcp dport`; null for `th dport`. */
  | { readonly kind: "destinationPort"; readonly only: "tcp" | "udp" | "sctp" | null }
  | { readonly kind: "inInterface" | "outInterface" }
  /** What the connection was first sent to, before any translation: `ct original ip daddr`, `ct original proto-dst`. */
  | { readonly kind: "originalDestination" | "originalPort" }
  /** What is one of some words. */
  | { readonly kind: NftFact }
  /** `numgen random mod N`. */
  | { readonly kind: "random"; readonly modulus: number };

/**
 * What connection tracking and routing know of a packet: `ct state`, `ct status`; `ct direction` (`original`: from who began the
 * connection); `fib saddr type`, `fib daddr type`.
 */
export type NftFact = "state" | "status" | "direction" | "sourceType" | "destinationType";

/** One or several expressions, joined by dots. */
export type NftKey = readonly NftExpression[];

/** Key of an element → its value, as written; `""` in a set. */
export type NftElements = ReadonlyMap<string, string>;

/** A set or map that stands in the rule, or one with a name. */
export type NftOperand =
  | { readonly kind: "named"; readonly name: string }
  | { readonly kind: "inline"; readonly elements: NftElements };

/** What a rule does with a packet that came so far in it. */
export type NftVerdict =
  | { readonly kind: "accept" | "drop" | "return" | "continue" }
  | { readonly kind: "jump" | "goto"; readonly chain: string };

/** One step of a rule; they are taken from left to right. */
export type NftStatement =
  | { readonly kind: "match"; readonly not: boolean; readonly key: NftKey; readonly operand: NftOperand }
  /** Holds if `(mark & mask) == value`. */
  | { readonly kind: "mark"; readonly not: boolean; readonly mask: number; readonly value: number }
  /** The mark becomes `(mark & keep) ^ flip`. */
  | { readonly kind: "setMark"; readonly keep: number; readonly flip: number }
  | { readonly kind: "verdict"; readonly verdict: NftVerdict }
  | { readonly kind: "verdictMap"; readonly key: NftKey; readonly operand: NftOperand }
  /** `port` null: the packet's own. */
  | { readonly kind: "dnat"; readonly ip: string; readonly port: number | null }
  /** Values are `ip . port` or `ip`. */
  | { readonly kind: "dnatMap"; readonly key: NftKey; readonly operand: NftOperand }
  | { readonly kind: "masquerade" }
  | { readonly kind: "reject"; readonly with: string | null }
  /** Writes the source into a set and starts its time afresh (`update`), or only writes it (`add`). */
  | { readonly kind: "remember"; readonly set: string; readonly refresh: boolean }
  /** Connection tracking leaves the packet alone, if it has not seen it yet. */
  | { readonly kind: "notrack" }
  /** Counts or describes; decides nothing. */
  | { readonly kind: "note" }
  /** The rest of a rule of another program, from its first unknown word on. */
  | { readonly kind: "unread"; readonly text: string };

/** `address`: one of the packet's family. */
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

/** The type of what an expression yields. */
export function typeOfExpression({ kind }: NftExpression, family: IpFamily): NftType {
  const type = TYPES[kind];
  return type !== "address" ? type : family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
}
