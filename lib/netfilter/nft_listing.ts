/**
 * Reads what `nft list ruleset` prints, of whatever tables: what cannot be read is told with its place, and everything around it is
 * read all the same.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { Traffic } from "../model/service_traffic.ts";
import { nftSeconds } from "./nft_duration.ts";
import type { NftElements, NftStatement, NftType } from "./nft_rule.ts";
import { typeOfExpression } from "./nft_rule.ts";
import type { NftChain, NftContainer, NftRule, NftTable } from "./nft_tables.ts";
import { nftFamily, NftWords } from "./nft_words.ts";
import { parseNftVerdict, readNftRule } from "./parse_nft_rule.ts";
import { type NftBase, readTypes, takeBase } from "./parse_nft_spec.ts";

/** Something that was printed and cannot be read. */
export interface ListingProblem {
  /** E.g. `table inet filter chain input`. */
  readonly place: string;
  /** E.g. `line 12: "…" is not understood`. */
  readonly message: string;
}

/** What was printed of the tables of one family. */
export interface NftListing {
  /** In the order of the text. Those of family `inet` belong to both families. */
  readonly tables: readonly NftTable[];
  readonly problems: readonly ListingProblem[];
}

interface OpenTable extends NftTable {
  readonly chains: Map<string, NftChain>;
  readonly containers: Map<string, NftContainer>;
}

const TABLE_LINE = /^table (\w+) (\S+) \{/;
const HANDLE = / # handle \d+$/;
/** Blocks that decide nothing about where a packet goes, or that rules name whose statements are told. */
const OTHER_BLOCK = /^(?:counter|quota|limit|flowtable|secmark|synproxy|ct \w+) .*\{$/;
const MANAGED = /table (ip6?) (\S+) is managed by iptables-nft/;

/**
 * The tables of one family.
 *
 * @param isWanted tables that are not are passed over, e.g. those in which iptables keeps its rules
 */
export function parseNftListing(
  text: string,
  family: IpFamily,
  isWanted: (word: string, table: string) => boolean = () => true,
): NftListing {
  const reader = new ListingReader(family, isWanted);
  let lineNumber = 0;
  let start = 0;
  while (start < text.length) {
    let end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    reader.line(text.slice(start, end), ++lineNumber);
    start = end + 1;
  }
  return reader.end();
}

/** The tables of iptables; the nft variant keeps its rules in tables of nftables that are called so. */
export const IPTABLES_TABLES: ReadonlySet<string> = new Set(["raw", "mangle", "nat", "filter", "security"]);

/** `ip filter` and the like: tables in which iptables keeps its rules, as nft says in front of them. */
export function tablesOfIptables(text: string): ReadonlySet<string> {
  return new Set(
    Array.from(text.matchAll(new RegExp(MANAGED, "g")), ([, word, name]) => `${word} ${name}`),
  );
}

type Block =
  | { readonly kind: "chain"; readonly name: string; base: NftBase | null; readonly rules: NftRule[] }
  | {
    readonly kind: "container";
    readonly name: string;
    readonly isMap: boolean;
    keys: readonly NftType[] | null;
    values: NftContainer["values"];
    timeoutSeconds: number | null;
    hasRanges: boolean;
    elements: Map<string, string>;
    counters: Map<string, Traffic>;
  }
  | { readonly kind: "other"; depth: number };

class ListingReader {
  readonly #family: IpFamily;
  readonly #isWanted: (word: string, table: string) => boolean;
  readonly #tables: OpenTable[] = [];
  readonly #problems: ListingProblem[] = [];
  #table: OpenTable | null = null;
  /** Of another family: nothing of it is read. */
  #isSkipped = false;
  #place = "";
  #block: Block | null = null;
  /** Elements whose end has not come. */
  #elements: string[] | null = null;
  #line = 0;

  constructor(family: IpFamily, isWanted: (word: string, table: string) => boolean) {
    this.#family = family;
    this.#isWanted = isWanted;
  }

  line(raw: string, number: number): void {
    this.#line = number;
    if (this.#isSkipped) {
      if (raw.startsWith("}")) this.#isSkipped = false;
      return;
    }
    const text = raw.trim();
    if (this.#elements !== null) return this.#elementLine(text);
    if (text === "" || text.startsWith("#")) return;
    if (this.#table === null) return this.#open(text);
    if (this.#block === null) return this.#tableLine(text, this.#table);
    this.#blockLine(text, this.#block, this.#table);
  }

  end(): NftListing {
    if (this.#table !== null) this.#problem("the text ends within it");
    const tables = this.#tables.map((table) =>
      settled(
        table,
        (place, message) => void this.#problems.push({ place: `${tableText(table)} ${place}`, message }),
      )
    );
    return { tables, problems: this.#problems };
  }

  #problem(message: string): void {
    this.#problems.push({ place: this.#place, message: `line ${this.#line}: ${message}` });
  }

  #open(text: string): void {
    const [matched, word = "", name = ""] = TABLE_LINE.exec(text) ?? [];
    this.#place = matched === undefined ? "nftables" : `table ${word} ${name}`;
    if (matched === undefined) return this.#problem(`"${text}" begins no table`);
    const isHere = word === nftFamily(this.#family) || word === "inet";
    if (isHere && this.#isWanted(word, name)) {
      const label = { label: `${word} ${name}` };
      this.#table = { family: this.#family, name, ...label, chains: new Map(), containers: new Map() };
      this.#tables.push(this.#table);
      return;
    }
    if (word === "netdev" || word === "bridge") {
      this.#problem(`what it does to packets of family ${word} is not read`);
    }
    this.#isSkipped = !text.endsWith("}");
  }

  #tableLine(text: string, table: OpenTable): void {
    if (text === "}") {
      this.#table = null;
      return;
    }
    const plain = text.replace(HANDLE, "");
    const [, kind = "", name = ""] = /^(chain|set|map) (\S+) \{$/.exec(plain) ?? [];
    if (kind === "chain") this.#block = { kind, name, base: null, rules: [] };
    else if (kind !== "") {
      this.#block = {
        kind: "container",
        name,
        isMap: kind === "map",
        keys: null,
        values: null,
        timeoutSeconds: null,
        hasRanges: false,
        elements: new Map(),
        counters: new Map(),
      };
    } else if (OTHER_BLOCK.test(plain)) this.#block = { kind: "other", depth: 1 };
    else if (!/^(?:comment|flags) /.test(plain)) this.#problem(`"${plain}" is not understood`);
    if (this.#block !== null) this.#place = `${tableText(table)} ${plain.replace(" {", "")}`;
  }

  #blockLine(text: string, block: Block, table: OpenTable): void {
    if (block.kind === "other") {
      block.depth += text.endsWith("{") ? 1 : text.startsWith("}") ? -1 : 0;
      if (block.depth === 0) this.#block = null;
    } else if (text === "}") {
      this.#close(block, table);
      this.#block = null;
    } else if (block.kind === "chain") this.#chainLine(text.replace(HANDLE, ""), block);
    else this.#containerLine(text, block);
  }

  #close(block: Exclude<Block, { kind: "other" }>, table: OpenTable): void {
    const { name } = block;
    if (block.kind === "chain") {
      table.chains.set(name, { name, base: block.base, rules: block.rules });
      return;
    }
    // Rules that look into it are told when a packet reaches them.
    if (block.keys === null) return;
    const { keys, values, timeoutSeconds, elements, hasRanges, counters } = block;
    table.containers.set(name, {
      name,
      keys,
      values,
      timeoutSeconds,
      elements,
      ...(hasRanges ? { hasRanges } : {}),
      ...(counters.size > 0 ? { counters } : {}),
    });
  }

  #chainLine(text: string, chain: Block & { kind: "chain" }): void {
    if (/^comment "/.test(text)) return;
    if (!text.startsWith("type ")) {
      chain.rules.push({ text, statements: readNftRule(text, this.#family, this.#isInet()) });
      return;
    }
    try {
      // What may choose another route is a filter with that in addition.
      chain.base = takeBase(new NftWords(`{ ${text.replace(/^type route /, "type filter ")} }`));
    } catch (error) {
      this.#problem(reason(error));
    }
  }

  #isInet(): boolean {
    return this.#table?.label?.startsWith("inet ") === true;
  }

  #containerLine(text: string, container: Block & { kind: "container" }): void {
    if (text.startsWith("elements = {")) {
      this.#elements = [];
      this.#elementLine(text.slice("elements = {".length).trim());
    } else if (text.startsWith("type")) {
      try {
        const { keys, values } = readTypes(text, this.#family);
        [container.keys, container.values] = [keys, container.isMap ? values : null];
      } catch (error) {
        this.#problem(reason(error));
      }
    } else if (text.startsWith("timeout ")) {
      container.timeoutSeconds = nftSeconds(text.slice("timeout ".length)) ?? 0;
    } else if (text.startsWith("flags ")) container.hasRanges = /\binterval\b/.test(text);
  }

  #elementLine(text: string): void {
    const isLast = text.endsWith("}");
    this.#elements?.push(isLast ? text.slice(0, -1).trimEnd() : text);
    if (!isLast) return;
    const container = this.#block;
    if (container?.kind === "container") {
      readElements((this.#elements ?? []).join(" "), container);
    }
    this.#elements = null;
  }
}

function tableText(table: NftTable): string {
  return `table ${table.label ?? `${nftFamily(table.family)} ${table.name}`}`;
}

function reason(error: unknown): string {
  if (!(error instanceof SyntaxError)) throw error;
  return error.message;
}

/** It never looks beyond the element: there may be 100,000 of them. */
const QUOTING_ELEMENT = /(?:[^",]|"[^"]*")+/g;
const QUOTED_COMMENT = / comment "[^"]*"/;
const DECORATION = / (?:counter|timeout|expires|limit|quota|last) /;

const COUNTED = / counter packets (\d+) bytes (\d+)/;

function readElements(
  list: string,
  { elements: into, counters }: {
    readonly elements: Map<string, string>;
    readonly counters: Map<string, Traffic>;
  },
): void {
  // A comment may hold the separator.
  const elements = list.includes('"') ? list.match(QUOTING_ELEMENT) ?? [] : list.split(",");
  for (const element of elements) {
    const printed = element.trim();
    if (printed === "") continue;
    const text = printed.includes('"') ? printed.replace(QUOTED_COMMENT, "") : printed;
    const colon = text.indexOf(" : ");
    const left = colon < 0 ? text : text.slice(0, colon);
    const decoration = left.search(DECORATION);
    const key = decoration < 0 ? left : left.slice(0, decoration);
    const name = key.replaceAll('"', "");
    into.set(name, colon < 0 ? "" : text.slice(colon + 3));
    const [, packets, bytes] = decoration < 0 ? [] : COUNTED.exec(left) ?? [];
    if (packets !== undefined) counters.set(name, { packets: Number(packets), bytes: Number(bytes) });
  }
}

/** Rules that name what is not there, or cannot be read, do not match. */
function settled(table: OpenTable, problem: (place: string, message: string) => void): NftTable {
  for (const [name, container] of table.containers) {
    if (container.values === "verdict") {
      dropLostVerdicts(table, container, (message) => problem(`map ${name}`, message));
    }
  }
  for (const [name, chain] of table.chains) {
    for (const [index, { text, statements }] of chain.rules.entries()) {
      const at = statements.findIndex((statement) => lacks(table, statement));
      const rule: NftRule | null = at < 0
        ? null
        : { text, statements: [...statements.slice(0, at), { kind: "unread", text }] };
      if (rule !== null) (chain.rules as NftRule[])[index] = rule;
      if ((rule?.statements ?? statements).some(({ kind }) => kind === "unread")) {
        problem(`chain ${name}`, `rule ${index + 1}: "${text}" is not understood`);
      }
    }
  }
  return table;
}

function dropLostVerdicts(
  { chains }: NftTable,
  { elements }: NftContainer,
  problem: (message: string) => void,
): void {
  for (const [key, value] of elements) {
    const target = /^(?:jump|goto) (\S+)$/.exec(value)?.[1];
    if (target === undefined ? isVerdict(value) : chains.has(target)) continue;
    problem(`element ${key} : ${value} leads nowhere`);
    (elements as Map<string, string>).delete(key);
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

/** True if the statement names a set, map or chain that was not read, or is of other types. */
function lacks({ chains, containers, family }: NftTable, statement: NftStatement): boolean {
  switch (statement.kind) {
    case "verdict":
      return "chain" in statement.verdict && !chains.has(statement.verdict.chain);
    case "remember":
      return !containers.has(statement.set);
    case "match":
    case "verdictMap":
    case "dnatMap": {
      if (statement.operand.kind === "inline") {
        return statement.kind === "verdictMap" && leadsNowhere(statement.operand.elements, chains);
      }
      const container = containers.get(statement.operand.name);
      const types = statement.key.map((expression) => typeOfExpression(expression, family));
      return container === undefined || types.join() !== container.keys.join();
    }
    default:
      return false;
  }
}

function leadsNowhere(elements: NftElements, chains: NftTable["chains"]): boolean {
  return elements.values().some((value) => {
    const target = /^(?:jump|goto) (\S+)$/.exec(value)?.[1];
    return target !== undefined && !chains.has(target);
  });
}
