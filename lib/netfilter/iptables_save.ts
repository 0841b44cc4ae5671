/**
 * The one reader of what iptables prints: `iptables-save`, a whole input of `iptables-restore`, and `iptables -S CHAIN`.
 *
 * Rules stay text and are cut out of it when a chain is asked for its rules: a node may hold 300,000 of them, and most readers want the
 * names of the chains or one chain. `parseIptablesRule` reads one.
 *
 * @module
 */
import type { Traffic } from "../model/service_traffic.ts";
import type { ListingProblem } from "./nft_listing.ts";

/** One chain of a table. */
export interface SavedChain {
  /** `ACCEPT` or `DROP` of a built-in chain; `-` for a user chain. */
  readonly policy: string;
  /** Rules in order, each without `-A CHAIN `. */
  readonly rules: readonly string[];
  /** True if the chain's rules are these printed lines, each with `-A CHAIN `: far cheaper than `rules`, where it is offered. */
  readonly holdsText?: (lines: string) => boolean;
}

/** Chain name → chain, in the order of the text. */
export type SavedTable = ReadonlyMap<string, SavedChain>;

/** Table name → table, in the order of the text. */
export type IptablesRuleset = ReadonlyMap<string, SavedTable>;

/** A chain of a listing, with the counters of its rules. */
export interface ListedChain extends SavedChain {
  /** Counters of each rule; null without counters (`iptables-save` without `-c`). */
  readonly counters: readonly (Traffic | null)[];
}

/** Tables of a listing. */
export interface IptablesListing {
  readonly tables: ReadonlyMap<string, ReadonlyMap<string, ListedChain>>;
  /** Lines that cannot be read, with their place; the lines around them are read all the same. */
  readonly problems: readonly ListingProblem[];
}

const BUILTIN_CHAINS: ReadonlySet<string> = new Set([
  "PREROUTING",
  "INPUT",
  "FORWARD",
  "OUTPUT",
  "POSTROUTING",
]);
/** The line of a chain: name, policy, and counters of the policy. */
const CHAIN_LINE_REGEXP = /^:(\S+)\s+(\S+)(?:\s+\[\d+:\d+\])?\s*$/;

/**
 * Reads one or more tables.
 *
 * @throws {SyntaxError} with the line number, for a line that is no chain, rule, table, `COMMIT`, comment or blank, a rule of a
 * chain that was not declared, or a table without `COMMIT`
 */
export function parseIptablesSave(text: string): IptablesRuleset {
  const { tables, problems: [problem] } = read(text, true);
  if (problem !== undefined) throw new SyntaxError(`iptables rules: ${problem.place}, ${problem.message}`);
  return tables;
}

/** Reads one or more tables; lines of `iptables-restore` that put a rule in front (`-I`) are read, too. */
export function parseIptablesListing(text: string): IptablesListing {
  return read(text, false);
}

function read(text: string, isStrict: boolean): IptablesListing {
  const reader = new Reader(text, isStrict);
  let lineNumber = 0;
  for (let start = 0; start < text.length;) {
    let end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    reader.line(start, end, ++lineNumber);
    start = end + 1;
  }
  return reader.end();
}

/** A range of the text with rules of one chain: start, end, and whether each is inserted at the top. */
interface Range {
  readonly start: number;
  end: number;
  readonly isInserted: boolean;
}

class TextChain implements ListedChain {
  readonly policy: string;
  readonly ranges: Range[] = [];
  readonly #text: string;
  #rules: readonly string[] | null = null;
  #counters: readonly (Traffic | null)[] | null = null;

  constructor(text: string, policy: string) {
    this.#text = text;
    this.policy = policy;
  }

  get rules(): readonly string[] {
    return this.#rules ??= this.#ofLines(ruleOfLine);
  }

  get counters(): readonly (Traffic | null)[] {
    return this.#counters ??= this.#ofLines(counterOfLine);
  }

  holdsText(lines: string): boolean {
    const [range, ...more] = this.ranges;
    return range !== undefined && more.length === 0 && range.end - range.start === lines.length &&
      this.#text.startsWith(lines, range.start);
  }

  #ofLines<T>(read: (line: string) => T): readonly T[] {
    const found: T[] = [];
    for (const { start, end, isInserted } of this.ranges) {
      for (const line of this.#text.slice(start, end).split("\n")) {
        if (isInserted) found.unshift(read(line));
        else found.push(read(line));
      }
    }
    return found;
  }
}

/** The rule behind `[1:60] -A CHAIN`. `-I` with a rule number says where it goes; without, at the top. */
function ruleOfLine(line: string): string {
  const dash = line.startsWith("[") ? line.indexOf("] ") + 2 : 0;
  const blank = line.indexOf(" ", dash + 3);
  return blank < 0 ? "" : line.slice(blank + 1).trim();
}

const COUNTERS = /^\[(\d+):(\d+)\]\s/;

function counterOfLine(line: string): Traffic | null {
  const [, packets, bytes] = COUNTERS.exec(line) ?? [];
  return packets === undefined ? null : { packets: Number(packets), bytes: Number(bytes) };
}

class Reader {
  readonly #text: string;
  /** True: output of a program that succeeded, which declares each table and each chain once. */
  readonly #isStrict: boolean;
  readonly #tables = new Map<string, Map<string, TextChain>>();
  readonly #problems: ListingProblem[] = [];
  #table: Map<string, TextChain> | null = null;
  #tableName = "";
  /** Chain of the previous line, its name and its range: the rules of one chain stand together. */
  #chainName = "";
  #range: Range | null = null;

  constructor(text: string, isStrict: boolean) {
    this.#text = text;
    this.#isStrict = isStrict;
  }

  line(start: number, end: number, number: number): void {
    const text = this.#text;
    const first = text[start];
    if ((first === "-" || first === "[") && this.#table !== null) return this.#rule(start, end, number);
    this.#range = null;
    const line = text.slice(start, end).trimEnd();
    if (line.trim() === "") return;
    if (first === "#") {
      for (const table of this.#isStrict ? [] : unreadableTables(line)) {
        this.#problem(`table ${table}`, "iptables cannot read it: nft added rules to it");
      }
      return;
    }
    if (first === "*") return this.#begin(line.slice(1).trim(), number);
    if (this.#table === null) {
      return this.#problem("iptables rules", `line ${number}: "${line}" stands outside of any table`);
    }
    if (line === "COMMIT") this.#table = null;
    else if (first === ":") this.#chain(line, number);
    else this.#unread(line, number);
  }

  end(): IptablesListing {
    if (this.#table !== null) this.#problem(this.#place, "the text ends within it, so it has no COMMIT");
    return { tables: this.#tables, problems: this.#problems };
  }

  get #place(): string {
    return `table ${this.#tableName}`;
  }

  #problem(place: string, message: string): void {
    this.#problems.push({ place, message });
  }

  #unread(line: string, number: number): void {
    this.#problem(this.#place, `line ${number}: "${line}" is neither a chain nor an added rule`);
  }

  #begin(name: string, number: number): void {
    if (this.#table !== null) this.#problem(this.#place, `line ${number}: it has no COMMIT`);
    this.#tableName = name;
    const known = this.#tables.get(name);
    if (known !== undefined && this.#isStrict) this.#problem(this.#place, `line ${number}: it appears twice`);
    this.#table = known ?? new Map();
    this.#tables.set(name, this.#table);
  }

  #chain(line: string, number: number): void {
    const [, name, policy] = CHAIN_LINE_REGEXP.exec(line) ?? [];
    if (name === undefined || policy === undefined) return this.#unread(line, number);
    if (this.#isStrict && this.#table?.has(name) === true) {
      this.#problem(this.#place, `line ${number}: chain "${name}" is declared twice`);
    }
    this.#table?.set(name, new TextChain(this.#text, policy));
  }

  #rule(start: number, end: number, number: number): void {
    const text = this.#text;
    const dash = text[start] === "[" ? text.indexOf("] ", start) + 2 : start;
    const verb = text.slice(dash, dash + 3);
    if ((verb !== "-A " && (verb !== "-I " || this.#isStrict)) || dash >= end) {
      this.#range = null;
      return this.#unread(text.slice(start, end), number);
    }
    const blank = text.indexOf(" ", dash + 3);
    const name = text.slice(dash + 3, blank < 0 || blank > end ? end : blank);
    const isInserted = verb === "-I ";
    if (this.#range !== null && this.#chainName === name && this.#range.isInserted === isInserted) {
      this.#range.end = end;
      return;
    }
    let chain = this.#table?.get(name);
    if (chain === undefined) {
      // Input of `iptables-restore` names built-in chains without declaring them.
      const isBuiltin = !this.#isStrict && BUILTIN_CHAINS.has(name);
      if (!isBuiltin) {
        this.#problem(this.#place, `line ${number}: chain "${name}" is not declared`);
      }
      chain = new TextChain(text, isBuiltin ? "ACCEPT" : "-");
      this.#table?.set(name, chain);
    }
    this.#chainName = name;
    this.#range = { start, end, isInserted };
    chain.ranges.push(this.#range);
  }
}

const BEFORE_NAME = "# Table `";
const AFTER_NAME = "' is incompatible, use 'nft' tool.";
const NOTICE_REGEXP = new RegExp(`^${BEFORE_NAME}(\\w+)${AFTER_NAME.replace(".", "\\.")}$`, "gm");

/** The line that iptables-save prints, with status 0, in place of a table that it cannot print. */
export function unreadableNotice(table: string): string {
  return BEFORE_NAME + table + AFTER_NAME;
}

/** Tables that iptables-save names instead of printing them. */
export function unreadableTables(saveText: string): ReadonlySet<string> {
  // Fast path: texts may be long, and such tables are rare.
  if (!saveText.includes(AFTER_NAME)) return new Set();
  return new Set([...saveText.matchAll(NOTICE_REGEXP)].map(([, table = ""]) => table));
}

/** A chain in the output of `iptables -S CHAIN`, for one or more chains. */
export interface NamedChain {
  readonly name: string;
  readonly chain: SavedChain;
}

/** The first line of a chain: `-P INPUT ACCEPT`, `-N KUBE-SERVICES`. */
const HEAD = /^-(?:P (\S+) (\S+)|N (\S+))\s*$/;

/** Reads the output of `-S CHAIN`, in the order of the text. */
export function parseListedChains(text: string): readonly NamedChain[] {
  const chains: NamedChain[] = [];
  let rules: string[] = [];
  let prefix = "";
  for (const line of text.split("\n")) {
    const [, builtin, policy = "-", user] = HEAD.exec(line) ?? [];
    const name = builtin ?? user;
    if (name !== undefined) {
      [rules, prefix] = [[], `-A ${name}`];
      chains.push({ name, chain: { policy, rules } });
    } else if (prefix !== "" && (line === prefix || line.startsWith(`${prefix} `))) {
      rules.push(line.slice(prefix.length + 1));
    }
  }
  return chains;
}
