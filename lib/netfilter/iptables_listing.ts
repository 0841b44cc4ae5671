/**
 * Reads what `iptables-save` prints, of whatever rules: lines that cannot be read are told with their place, and those around them
 * count all the same. Rules are cut out of the text when somebody asks for their chain: a node may have 300,000 of them.
 *
 * @module
 */
import type { Traffic } from "../model/service_traffic.ts";
import { CHAIN_LINE_REGEXP, type SavedChain, unreadableTables } from "./iptables_save.ts";
import type { ListingProblem } from "./nft_listing.ts";

/** A chain whose rules are cut out of the text when they are asked for. */
export interface ListedChain extends SavedChain {
  /** Of each rule; null where nothing was counted (`iptables-save` without `-c`). */
  readonly counters: readonly (Traffic | null)[];
}

/** The tables of a text. */
export interface IptablesListing {
  readonly tables: ReadonlyMap<string, ReadonlyMap<string, ListedChain>>;
  readonly problems: readonly ListingProblem[];
}

const BUILTIN_CHAINS: ReadonlySet<string> = new Set([
  "PREROUTING",
  "INPUT",
  "FORWARD",
  "OUTPUT",
  "POSTROUTING",
]);

/** Reads one or more tables; lines of `iptables-restore` that put a rule in front (`-I`) are read, too. */
export function parseIptablesListing(text: string): IptablesListing {
  const reader = new Reader(text);
  let lineNumber = 0;
  for (let start = 0; start < text.length;) {
    let end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    reader.line(start, end, ++lineNumber);
    start = end + 1;
  }
  return reader.end();
}

/** Where rules of one chain stand in the text: from, to, and whether each is put in front. */
interface Range {
  readonly start: number;
  end: number;
  readonly isInserted: boolean;
}

class TextChain implements ListedChain {
  readonly policy: string;
  readonly packets: number;
  readonly bytes: number;
  readonly ranges: Range[] = [];
  readonly #text: string;
  #rules: readonly string[] | null = null;
  #counters: readonly (Traffic | null)[] | null = null;

  constructor(text: string, policy: string, packets: number, bytes: number) {
    this.#text = text;
    this.policy = policy;
    this.packets = packets;
    this.bytes = bytes;
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

/** What stands behind `[1:60] -A CHAIN`. With the number of a rule `-I` says where; without, in front. */
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
  readonly #tables = new Map<string, Map<string, TextChain>>();
  readonly #problems: ListingProblem[] = [];
  #table: Map<string, TextChain> | null = null;
  #tableName = "";
  /** The chain of the line before, its name and its range: the rules of one chain stand together. */
  #chainName = "";
  #range: Range | null = null;

  constructor(text: string) {
    this.#text = text;
  }

  line(start: number, end: number, number: number): void {
    const text = this.#text;
    const first = text[start];
    if ((first === "-" || first === "[") && this.#table !== null) return this.#rule(start, end, number);
    this.#range = null;
    const line = text.slice(start, end).trimEnd();
    if (line.trim() === "") return;
    if (first === "#") {
      for (const table of unreadableTables(line)) {
        this.#problem(`table ${table}`, "iptables cannot read it: somebody added to it with nft");
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
    if (this.#table !== null) this.#problem(`table ${this.#tableName}`, "the text ends within it");
    return { tables: this.#tables, problems: this.#problems };
  }

  #problem(place: string, message: string): void {
    this.#problems.push({ place, message });
  }

  #unread(line: string, number: number): void {
    this.#problem(`table ${this.#tableName}`, `line ${number}: "${line}" is neither a chain nor a rule`);
  }

  #begin(name: string, number: number): void {
    if (this.#table !== null) this.#problem(`table ${this.#tableName}`, `line ${number}: it has no COMMIT`);
    this.#tableName = name;
    const known = this.#tables.get(name);
    this.#table = known ?? new Map();
    this.#tables.set(name, this.#table);
  }

  #chain(line: string, number: number): void {
    const [, name, policy, packets, bytes] = CHAIN_LINE_REGEXP.exec(line) ?? [];
    if (name === undefined || policy === undefined) return this.#unread(line, number);
    this.#table?.set(name, new TextChain(this.#text, policy, Number(packets ?? 0), Number(bytes ?? 0)));
  }

  #rule(start: number, end: number, number: number): void {
    const text = this.#text;
    const dash = text[start] === "[" ? text.indexOf("] ", start) + 2 : start;
    const verb = text.slice(dash, dash + 3);
    if ((verb !== "-A " && verb !== "-I ") || dash >= end) {
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
      // A text for `iptables-restore` names the kernel's own chains without declaring them.
      const isBuiltin = BUILTIN_CHAINS.has(name);
      if (!isBuiltin) {
        this.#problem(`table ${this.#tableName}`, `line ${number}: chain ${name} is not declared`);
      }
      chain = new TextChain(text, isBuiltin ? "ACCEPT" : "-", 0, 0);
      this.#table?.set(name, chain);
    }
    this.#chainName = name;
    this.#range = { start, end, isInserted };
    chain.ranges.push(this.#range);
  }
}
