/**
 * nftables tables as data, filled by the text that `nft -f` reads. It refuses what the kernel refuses: a rule that names what is
 * not there, a second value for a key, the deletion of what is missing.
 *
 * @module
 */
import { parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Traffic } from "../model/service_traffic.ts";
import type { NftElements, NftKey, NftOperand, NftStatement, NftType, NftVerdict } from "./nft_rule.ts";
import { typeOfExpression } from "./nft_rule.ts";
import { NftWords, splitNftWords, unquoted } from "./nft_words.ts";
import { parseNftRule, parseNftVerdict, takeElements } from "./parse_nft_rule.ts";
import { type NftBase, type NftSpec, takeBase, takeComment, takeSpec } from "./parse_nft_spec.ts";

/** One rule of a chain. */
export interface NftRule {
  /** As it was written, without `add rule …`. */
  readonly text: string;
  /** What it says, in order. */
  readonly statements: readonly NftStatement[];
}

/** One chain of a table. */
export interface NftChain {
  /** Its name in the table. */
  readonly name: string;
  /** null for a chain that only other chains call. */
  readonly base: NftBase | null;
  /** Its rules, in order. */
  readonly rules: readonly NftRule[];
}

/** A set or map. */
export interface NftContainer extends NftSpec {
  /** Its name in the table. */
  readonly name: string;
  /** Keys are canonical, see {@linkcode canonicalKey}. */
  readonly elements: NftElements;
  /** True if an element may be a network or a range, e.g. `10.0.0.0/8`, `80-90`. */
  readonly hasRanges?: boolean;
  /** What was counted of elements that count, by their keys. */
  readonly counters?: ReadonlyMap<string, Traffic>;
}

/** One table of one family. */
export interface NftTable {
  /** The family of packets that it is shown. */
  readonly family: IpFamily;
  /** Its name. */
  readonly name: string;
  /** How nft calls it, e.g. `inet firewall`; without it the word of the family and the name. */
  readonly label?: string;
  /** By name. */
  readonly chains: ReadonlyMap<string, NftChain>;
  /** Sets and maps, by name. */
  readonly containers: ReadonlyMap<string, NftContainer>;
}

/** One element, and where it belongs. */
export interface NftElement {
  /** The table's family. */
  readonly family: IpFamily;
  /** The table's name. */
  readonly table: string;
  /** Set or map. */
  readonly container: string;
  /** Canonical. */
  readonly key: string;
  /** `""` in a set. */
  readonly value: string;
}

interface OpenChain extends NftChain {
  readonly rules: NftRule[];
}
interface OpenContainer extends NftContainer {
  readonly elements: Map<string, string>;
}
interface OpenTable extends NftTable {
  readonly chains: Map<string, OpenChain>;
  readonly containers: Map<string, OpenContainer>;
}

const FAMILIES: ReadonlyMap<string, IpFamily> = new Map([["ip", "IPv4"], ["ip6", "IPv6"]]);
/**
 * A key in the one form that compares by text: canonical addresses, names of protocols, plain numbers.
 *
 * @throws {SyntaxError} if it is not of these types
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
      return part;
  }
  throw new SyntaxError(`"${part}" is no ${type}`);
}

/** All tables that were written so far. */
export class NftTables {
  readonly #tables: OpenTable[] = [];

  /** In the order in which they were made. */
  get tables(): readonly NftTable[] {
    return this.#tables;
  }

  /**
   * Runs text for `nft -f`: one command a line, or several lines for what stands in braces; no `include`, no variables. After a refusal the tables are of no use.
   *
   * @throws {SyntaxError} at words that are not understood
   * @throws {RangeError} at what the kernel would refuse
   */
  run(text: string): void {
    let command = "";
    let open = 0;
    for (const line of text.split("\n")) {
      const trimmed = line.trim();
      if (trimmed === "" || trimmed.startsWith("#")) continue;
      command += command === "" ? trimmed : ` ${trimmed}`;
      for (const word of splitNftWords(trimmed)) open += word === "{" ? 1 : word === "}" ? -1 : 0;
      if (open !== 0) continue;
      this.#command(command);
      command = "";
    }
    if (command !== "") throw new SyntaxError(`"${command}" has braces that are not closed`);
  }

  /**
   * Adds an element whose key and value are canonical, as `add element` does.
   *
   * @throws {RangeError} if there is no such set or map, or it has another value for the key
   */
  addElement({ family, table: name, container: into, key, value }: NftElement): void {
    const table = this.#tables.find((one) => one.family === family && one.name === name);
    const container = table?.containers.get(into);
    if (container === undefined) throw new RangeError(`There is no set or map ${into}`);
    const known = container.elements.get(key);
    if (known !== undefined && known !== value) throw new RangeError(`${into} has ${key} : ${known} already`);
    container.elements.set(key, value);
  }

  #command(line: string): void {
    const words = new NftWords(line);
    const verb = words.take();
    const object = words.take();
    const family = FAMILIES.get(words.take());
    if (family === undefined) throw words.refusal("is about another family", -1);
    const tableName = words.take();
    if (object === "table") return this.#table(verb, family, tableName, words);
    const table = this.#tables.find((one) => one.family === family && one.name === tableName);
    if (table === undefined) throw new RangeError(`"${line}": there is no such table`);
    const name = unquoted(words.take());
    switch (object) {
      case "chain":
        return chainCommand(table, verb, name, words);
      case "rule":
        if (verb !== "add") throw words.refusal("does something unknown to a rule");
        return addRule(table, name, /^(?:\S+\s+){5}(.*)$/.exec(line)?.[1] ?? "");
      case "set":
      case "map":
        return containerCommand(table, verb, object, name, words);
      case "element":
        return elementCommand(table, verb, name, words);
      default:
        throw words.refusal(`is about ${object}, which is not understood`);
    }
  }

  #table(verb: string, family: IpFamily, name: string, words: NftWords): void {
    const at = this.#tables.findIndex((one) => one.family === family && one.name === name);
    if (verb === "add") {
      if (at < 0) this.#tables.push({ family, name, chains: new Map(), containers: new Map() });
      if (!words.atEnd) takeComment(words);
    } else if ((verb === "delete" && at >= 0) || verb === "destroy") {
      if (at >= 0) this.#tables.splice(at, 1);
    } else {throw verb === "delete"
        ? new RangeError(`there is no table ${name}`)
        : words.refusal("is unknown");}
  }
}

function chainCommand(table: OpenTable, verb: string, name: string, words: NftWords): void {
  const known = table.chains.get(name);
  if (verb === "add") {
    const base = words.atEnd ? null : takeBase(words);
    if (known === undefined) table.chains.set(name, { name, base, rules: [] });
    return;
  }
  if (known === undefined) throw new RangeError(`There is no chain ${name} to ${verb}`);
  if (verb === "flush") known.rules.length = 0;
  else if (verb === "delete") {
    if (isUsed(table, name)) throw new RangeError(`Chain ${name} is still used`);
    table.chains.delete(name);
  } else throw words.refusal("does something unknown to a chain");
}

function goesTo(verdict: NftVerdict, chain: string): boolean {
  return "chain" in verdict && verdict.chain === chain;
}

function isUsed({ chains, containers }: NftTable, name: string): boolean {
  const inOperand = (operand: NftOperand): boolean =>
    operand.kind === "inline" &&
    [...operand.elements.values()].some((value) => goesTo(parseNftVerdict(value), name));
  const inRule = chains.values().some(({ rules }) =>
    rules.some(({ statements }) =>
      statements.some((one) =>
        (one.kind === "verdict" && goesTo(one.verdict, name)) ||
        (one.kind === "verdictMap" && inOperand(one.operand))
      )
    )
  );
  return inRule ||
    containers.values().some(({ values, elements }) =>
      values === "verdict" && elements.values().some((value) => goesTo(parseNftVerdict(value), name))
    );
}

function containerCommand(
  table: OpenTable,
  verb: string,
  kind: "set" | "map",
  name: string,
  words: NftWords,
): void {
  const known = table.containers.get(name);
  if (verb === "add") {
    const spec = takeSpec(words, kind, table.family);
    table.containers.set(name, { name, ...spec, elements: known?.elements ?? new Map() });
    return;
  }
  if (known === undefined) throw new RangeError(`There is no ${kind} ${name} to ${verb}`);
  if (verb === "flush") known.elements.clear();
  else if (verb === "delete") table.containers.delete(name);
  else throw words.refusal(`does something unknown to a ${kind}`);
}

function elementCommand(table: OpenTable, verb: string, name: string, words: NftWords): void {
  const container = table.containers.get(name);
  if (container === undefined) throw new RangeError(`There is no set or map ${name}`);
  for (const [text, value] of takeElements(words)) {
    const key = canonicalKey(text, container.keys);
    const known = container.elements.get(key);
    if (verb === "delete") {
      if (known === undefined) throw new RangeError(`${name} has no element ${key} to delete`);
      container.elements.delete(key);
    } else if (verb === "add") {
      const wanted = canonicalValue(table, container, value);
      if (known !== undefined && known !== wanted) {
        throw new RangeError(`${name} has ${key} : ${known} already`);
      }
      container.elements.set(key, wanted);
    } else throw words.refusal("does something unknown to an element");
  }
}

function canonicalValue(table: NftTable, { name, values }: NftContainer, value: string): string {
  if (values === null) {
    if (value !== "") throw new SyntaxError(`An element of set ${name} has the value ${value}`);
    return "";
  }
  if (values !== "verdict") return canonicalKey(value, values);
  checkVerdict(table, parseNftVerdict(value));
  return value;
}

function checkVerdict({ chains }: NftTable, verdict: NftVerdict): void {
  if (!("chain" in verdict)) return;
  const target = chains.get(verdict.chain);
  if (target === undefined) throw new RangeError(`There is no chain ${verdict.chain} to go to`);
  if (target.base !== null) throw new RangeError(`Chain ${verdict.chain} is only called by the kernel`);
}

function addRule(table: OpenTable, chainName: string, text: string): void {
  const chain = table.chains.get(chainName);
  if (chain === undefined) throw new RangeError(`There is no chain ${chainName} for a rule`);
  const statements = parseNftRule(text, table.family);
  for (const statement of statements) checkStatement(table, statement);
  chain.rules.push({ text, statements });
}

/** Whether what the statement names is there and of the right types. */
function checkStatement(table: NftTable, statement: NftStatement): void {
  const { family } = table;
  switch (statement.kind) {
    case "verdict":
      return checkVerdict(table, statement.verdict);
    case "match":
      return checkOperand(table, statement.key, statement.operand, null);
    case "verdictMap":
      return checkOperand(table, statement.key, statement.operand, "verdict");
    case "dnatMap": {
      const address = family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
      return checkOperand(table, statement.key, statement.operand, [address, "inet_service"]);
    }
    case "remember": {
      const set = table.containers.get(statement.set);
      if (set === undefined || set.values !== null) throw new RangeError(`There is no set ${statement.set}`);
    }
  }
}

function checkOperand(
  table: NftTable,
  key: NftKey,
  operand: NftOperand,
  values: NftContainer["values"],
): void {
  if (operand.kind === "inline") {
    if (values !== "verdict") return;
    for (const value of operand.elements.values()) checkVerdict(table, parseNftVerdict(value));
    return;
  }
  const container = table.containers.get(operand.name);
  if (container === undefined) throw new RangeError(`There is no set or map ${operand.name}`);
  const keys = key.map((expression) => typeOfExpression(expression, table.family));
  if (JSON.stringify([keys, values]) !== JSON.stringify([container.keys, container.values])) {
    throw new RangeError(
      `${operand.name} holds ${[container.keys, container.values].flat().join(" ")}, not ${
        [keys, values].flat().join(" ")
      }`,
    );
  }
}
