/**
 * An nft table as packets of one family pass it: rules as data, parsed when a packet comes to their chain, and the types of sets and
 * maps. Rules that name missing objects, or cannot be read, do not match.
 *
 * @module
 */
import { parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import { type ListedContainer, type ListedTable, type ListingProblem, parseHook } from "./nft_listing.ts";
import { type NftElements, type NftStatement, type NftType, typeOfExpression } from "./nft_rule.ts";
import { NftWords } from "./nft_words.ts";
import { parseNftVerdict, readNftRule, takeKey } from "./parse_nft_rule.ts";

/** Netfilter hooks that base chains attach to. */
export type NftHook = "prerouting" | "input" | "forward" | "output" | "postrouting";

const HOOKS: ReadonlySet<string> = new Set<NftHook>([
  "prerouting",
  "input",
  "forward",
  "output",
  "postrouting",
]);

/** Declaration of a base chain. */
export interface NftBase {
  /** Chain type; only `nat` may translate. */
  readonly type: "filter" | "nat";
  /** Hook that calls the chain. */
  readonly hook: NftHook;
  /** Priority: chains of one hook are called from the lowest to the highest. */
  readonly priority: number;
  /** Policy: the verdict for packets that no rule decided. */
  readonly policy: "accept" | "drop";
}

/** One rule of a chain. */
export interface NftRule {
  /** The rule as written, without `add rule …`. */
  readonly text: string;
  /** Statements of the rule, in order. */
  readonly statements: readonly NftStatement[];
}

/** Reads a base chain's hook as printed; null if IP packets do not pass it, or if it is not understood. */
export function baseOf(hook: string | undefined): NftBase | null {
  const base = hook === undefined ? null : parseHook(hook);
  if (base === null || !HOOKS.has(base.hook)) return null;
  // A chain of type `route` is a filter chain that may also reroute.
  return { ...base, type: base.type === "nat" ? "nat" : "filter", hook: base.hook as NftHook };
}

/** Parsed rules of chains, which do not change any more, by the family of the packets. */
const READ: Readonly<Record<IpFamily, WeakMap<readonly string[], readonly NftRule[]>>> = {
  IPv4: new WeakMap(),
  IPv6: new WeakMap(),
};

/** A table, for one family; see the module. */
export class NftTable {
  readonly family: IpFamily;
  readonly listed: ListedTable;
  readonly #types = new Map<string, readonly NftType[] | null>();

  /** @param family of the packets */
  constructor(listed: ListedTable, family: IpFamily) {
    this.listed = listed;
    this.family = family;
  }

  /** Rules of a chain; undefined: there is no such chain. */
  rulesOf(chain: string): readonly NftRule[] | undefined {
    const texts = this.listed.chains.get(chain)?.rules;
    if (texts === undefined) return undefined;
    const known = READ[this.family].get(texts);
    if (known !== undefined) return known;
    const rules = texts.map((text) => this.#read(text));
    READ[this.family].set(texts, rules);
    return rules;
  }

  /** Types of a key's parts; null: there is no such set or map, or its types are unknown. */
  keyTypes(container: string): readonly NftType[] | null {
    const known = this.#types.get(container);
    if (known !== undefined) return known;
    const listed = this.listed.containers.get(container);
    const types = listed === undefined ? null : keyTypes(listed, this.family);
    this.#types.set(container, types);
    return types;
  }

  /** Parts that cannot be read, and jumps to missing chains. */
  *problems(): Generator<ListingProblem> {
    const { name, chains, containers } = this.listed;
    for (const [container, { kind, elements, type }] of containers) {
      const place = `table ${name} ${kind} ${container}`;
      if (type !== "" && this.keyTypes(container) === null) {
        yield { place, message: `"${type}" is not understood` };
      }
      if (!type.endsWith(": verdict")) continue;
      for (const [key, value] of elements) {
        if (!this.#leadsAnywhere(value)) yield { place, message: `element ${key} : ${value} leads nowhere` };
      }
    }
    for (const [chain, { hook }] of chains) {
      const place = `table ${name} chain ${chain}`;
      if (hook !== undefined && baseOf(hook) === null) {
        yield { place, message: `"${hook}" is not understood` };
      }
      for (const [index, { text, statements }] of (this.rulesOf(chain) ?? []).entries()) {
        if (!statements.some(({ kind }) => kind === "unread")) continue;
        yield { place, message: `rule ${index + 1}: "${text}" is not understood` };
      }
    }
  }

  #read(text: string): NftRule {
    const statements = readNftRule(text, this.family, this.listed.name.startsWith("inet "));
    const at = statements.findIndex((statement) => this.#lacks(statement));
    return { text, statements: at < 0 ? statements : [...statements.slice(0, at), { kind: "unread", text }] };
  }

  /** True if the statement names a missing set, map or chain, or one of other types. */
  #lacks(statement: NftStatement): boolean {
    const { chains, containers } = this.listed;
    switch (statement.kind) {
      case "verdict":
        return "chain" in statement.verdict && !chains.has(statement.verdict.chain);
      case "remember":
        return !containers.has(statement.set);
      case "match":
      case "verdictMap":
      case "dnatMap": {
        if (statement.operand.kind === "inline") {
          return statement.kind === "verdictMap" && this.#isAnyLost(statement.operand.elements);
        }
        const types = statement.key.map((expression) => typeOfExpression(expression, this.family));
        return types.join() !== this.keyTypes(statement.operand.name)?.join();
      }
      default:
        return false;
    }
  }

  #isAnyLost(elements: NftElements): boolean {
    return elements.values().some((value) => !this.#leadsAnywhere(value));
  }

  #leadsAnywhere(verdict: string): boolean {
    const target = /^(?:jump|goto) (\S+)$/.exec(verdict)?.[1];
    return target === undefined ? isVerdict(verdict) : this.listed.chains.has(target);
  }
}

function isVerdict(text: string): boolean {
  try {
    parseNftVerdict(text);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

const TYPES: ReadonlySet<string> = new Set<NftType>([
  "ipv4_addr",
  "ipv6_addr",
  "inet_proto",
  "inet_service",
  "ifname",
]);

function keyTypes({ type }: ListedContainer, family: IpFamily): readonly NftType[] | null {
  const [, word = "", keys = ""] = /^(type|typeof) (.*?)(?: : .*)?$/.exec(type) ?? [];
  if (word === "type") {
    const names = keys.split(" . ");
    return names.every((name) => TYPES.has(name)) ? names as NftType[] : null;
  }
  try {
    const words = new NftWords(keys);
    const types = takeKey(words, family).map((expression) => typeOfExpression(expression, family));
    return words.atEnd ? types : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/**
 * The one form of a key that compares by text: canonical addresses, names of protocols, plain numbers.
 *
 * @throws {SyntaxError} if the key is not of these types
 */
export function canonicalKey(text: string, types: readonly NftType[]): string {
  const parts = text.split(" . ");
  if (parts.length !== types.length) throw new SyntaxError(`"${text}" has not ${types.length} parts`);
  return parts.map((part, index) => canonicalPart(part, types[index])).join(" . ");
}

function canonicalPart(part: string, type: NftType | undefined): string {
  switch (type) {
    case "ipv4_addr":
    case "ipv6_addr": {
      const ip = parseIp(part);
      if (ip?.family === (type === "ipv4_addr" ? "IPv4" : "IPv6")) return ip.text;
      break;
    }
    case "inet_service":
    case "integer":
      if (/^\d{1,5}$/.test(part)) return String(Number(part));
      break;
    case "inet_proto":
      if (/^(?:tcp|udp|sctp|icmp|ipv6-icmp)$/.test(part)) return part;
      break;
    case "ifname":
    case "word":
      return part;
  }
  throw new SyntaxError(`"${part}" is no ${type}`);
}
