/**
 * Lookups of a virtual packet in sets and maps of nftables rules, anonymous ones included.
 *
 * @module
 */
import { cidrContains, compareIps, type Ip, parseIp } from "../model/ip.ts";
import { type Fraction, multiply } from "./flow.ts";
import {
  type NftElements,
  type NftExpression,
  type NftKey,
  type NftOperand,
  type NftType,
  typeOfExpression,
} from "../netfilter/nft_rule.ts";
import type { ListedContainer } from "../netfilter/nft_listing.ts";
import { canonicalKey, type NftTable } from "../netfilter/nft_ruleset.ts";
import { isNodeAddress, leavesThrough, networkOf, type PacketContext, type Walk } from "./packet_walk.ts";

/** The key's values in one branch. A random number makes one branch per value. */
interface Reading {
  readonly walk: Walk;
  readonly parts: string[];
}

/** Result of one branch's lookup in a set or map; `value` null: no element matched. */
export interface Lookup {
  readonly walk: Walk;
  readonly value: string | null;
}

/** Looks up keys of the rules of one nft table. */
export class NftMatcher {
  readonly #table: NftTable;
  readonly #context: PacketContext;

  constructor(table: NftTable, context: PacketContext) {
    this.#table = table;
    this.#context = context;
  }

  /**
   * Looks the key up, in every branch that its random numbers make. Empty if the packet has no such field: the kernel then
   * goes on with the next rule.
   */
  lookUp(key: NftKey, operand: NftOperand, walk: Walk): readonly Lookup[] {
    return this.#readKey(key, walk).map(({ walk, parts }) => ({
      walk,
      value: operand.kind === "named"
        ? this.#inContainer(operand.name, parts, walk)
        : this.#inline(operand.elements, key, parts),
    }));
  }

  /** True if an affinity set still holds the packet's source. */
  remembers(set: string, walk: Walk): boolean {
    return this.#inContainer(set, [walk.source.text], walk) !== null;
  }

  #readKey(key: NftKey, start: Walk): readonly Reading[] {
    let readings: readonly Reading[] = [{ walk: start, parts: [] }];
    for (const expression of key) {
      if (expression.kind === "random") {
        readings = readings.flatMap((reading) => chosen(reading, expression.modulus));
        continue;
      }
      const part = this.#part(expression, start);
      if (part === undefined) return [];
      for (const { parts } of readings) parts.push(part);
    }
    return readings;
  }

  /** The value of one expression; undefined: the packet has no such field, or it is unknown. */
  #part(expression: Exclude<NftExpression, { readonly kind: "random" }>, walk: Walk): string | undefined {
    switch (expression.kind) {
      case "source":
      case "destination":
        return walk[expression.kind].text;
      case "protocol":
        return walk.protocol === "icmp" && this.#table.family === "IPv6" ? "ipv6-icmp" : walk.protocol;
      case "destinationPort":
        // At the offset of a port an ICMP header holds its checksum, which no rule here means.
        return expression.only === null || expression.only === walk.protocol ? String(walk.port) : undefined;
      case "originalDestination":
        return walk.original.destination.text;
      case "originalPort":
        return String(walk.original.port);
      case "state":
        return walk.state.toLowerCase();
      case "status":
        return [walk.translated ? "dnat" : "", walk.masquerade ? "snat" : ""].join();
      case "direction":
        // Only the original direction of a connection is simulated, not its replies.
        return "original";
      case "sourceType":
      case "destinationType": {
        const ip = expression.kind === "sourceType" ? walk.source : walk.destination;
        return isNodeAddress(ip, this.#context.hostState) ? "local" : "";
      }
      case "inInterface":
        return walk.inInterface;
      case "outInterface": {
        const name = leavesThrough(walk, this.#context.hostState);
        if (name === undefined) {
          this.#context.report(
            "A rule that looks at the outInterface is not understood and taken as not matching",
          );
        }
        return name;
      }
      default:
        return expression satisfies never;
    }
  }

  #inContainer(name: string, parts: readonly string[], walk: Walk): string | null {
    const container = this.#table.listed.containers.get(name);
    const types = this.#table.keyTypes(name);
    if (container === undefined || types === null) throw new RangeError(`There is no set or map ${name}`);
    // Of all types, nft quotes only interface names.
    const key = types.includes("ifname")
      ? parts.map((part, index) => types[index] === "ifname" ? `"${part}"` : part).join(" . ")
      : parts.join(" . ");
    const written = container.elements.get(key) ?? this.#inRanges(container, types, parts);
    const { timeoutSeconds } = container;
    if (written !== undefined || timeoutSeconds === undefined) return written ?? null;
    if (key === walk.source.text && walk.remembered.includes(name)) return "";
    const { affinity, nowSeconds } = this.#context.hostState;
    const seen = affinity.get(name)?.get(key);
    // In the kernel an element is gone as soon as its timeout is over.
    return seen !== undefined && nowSeconds - seen < timeoutSeconds ? "" : null;
  }

  /** The value of the element whose network or range contains the key. */
  #inRanges(
    { hasRanges, elements }: ListedContainer,
    types: readonly NftType[],
    parts: readonly string[],
  ): string | undefined {
    if (!hasRanges) return undefined;
    for (const [text, value] of elements) {
      const patterns = text.replaceAll('"', "").split(" . ");
      const fits = (part: string, index: number): boolean =>
        inRange(patterns[index] ?? "", part, types[index], (network, ip) => this.#contains(network, ip));
      if (patterns.length === parts.length && parts.every(fits)) return value;
    }
    return undefined;
  }

  #inline(elements: NftElements, key: NftKey, parts: readonly string[]): string | null {
    const written = elements.get(parts.join(" . "));
    if (written !== undefined) return written;
    for (const [text, value] of elements) {
      const patterns = text.split(" . ");
      if (patterns.length !== parts.length) {
        throw new SyntaxError(`"${text}" has not ${parts.length} parts`);
      }
      if (parts.every((part, index) => this.#partMatches(patterns[index] ?? "", part, key[index]))) {
        return value;
      }
    }
    return null;
  }

  #partMatches(pattern: string, part: string, expression: NftExpression | undefined): boolean {
    if (expression === undefined) return false;
    if (expression.kind === "status") return part.split(",").includes(pattern);
    const type = typeOfExpression(expression, this.#table.family);
    const isAddress = type === "ipv4_addr" || type === "ipv6_addr";
    const isRange = isAddress ? pattern.includes("-") : type === "inet_service" && /^\d+-\d+$/.test(pattern);
    if (type === "ifname" || isRange || isAddress && pattern.includes("/")) {
      return inRange(pattern, part, type, (network, ip) => this.#contains(network, ip));
    }
    return canonicalKey(pattern, [type]) === part;
  }

  #contains(text: string, ip: Ip): boolean {
    const cidr = networkOf(this.#context, text);
    if (cidr === null || cidr.family !== ip.family) {
      throw new SyntaxError(`"${text}" is no network of ${ip.family}`);
    }
    return cidrContains(cidr, ip);
  }
}

/** True if a part of a key is in `80`, `80-90`, `10.0.0.0/8`, `10.0.0.1-10.0.0.9` or `*`. */
function inRange(
  pattern: string,
  part: string,
  type: NftType | undefined,
  contains: (network: string, ip: Ip) => boolean,
): boolean {
  if (pattern === part || pattern === "*") return true;
  if (type === "ifname") return interfaceMatches(pattern, part);
  const [first = "", last] = pattern.split("-");
  if (type === "inet_service") {
    return last !== undefined && Number(part) >= Number(first) && Number(part) <= Number(last);
  }
  const ip = parseIp(part);
  if (ip === null) return false;
  if (last === undefined) return pattern.includes("/") && contains(pattern, ip);
  const [from, to] = [parseIp(first), parseIp(last)];
  return from !== null && to !== null && compareIps(from, ip) <= 0 && compareIps(ip, to) <= 0;
}

/** Packets of processes on the node have no incoming interface; to nft that is an empty name. */
function interfaceMatches(pattern: string, name: string): boolean {
  return pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** One branch for each value of a random number. */
function chosen({ walk, parts }: Reading, modulus: number): readonly Reading[] {
  const share: Fraction = { numerator: 1n, denominator: BigInt(modulus) };
  const probability = multiply(walk.probability, share);
  return Array.from({ length: modulus }, (_, number) => ({
    walk: { ...walk, probability },
    parts: [...parts, String(number)],
  }));
}
