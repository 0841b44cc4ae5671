/**
 * Reads what iptables prints of chains while it prints: how many rules each has, and a number that stands for their text. All rules of
 * a large node are tens of megabytes, of which only some lines are kept.
 *
 * @module
 */
import { LineCutter } from "../text/line_cutter.ts";
import { unreadableTables } from "./iptables_save.ts";

/** The tables that hold something of ours: in mangle that is its canary. */
export type PrintedTable = "filter" | "nat" | "mangle";

/** Table → chains; what becomes of other chains' rules is counted and hashed, but their text is not kept. */
export type KeptChains = ReadonlyMap<string, { has(chain: string): boolean }>;

/** What a text of iptables-save says of its tables. */
export interface PrintedTables {
  /** True for nothing at all, as where no table exists, and for tables to their ends; only comments follow the last one. */
  readonly isWhole: boolean;
  /** Those that came to their ends. */
  readonly ended: ReadonlySet<string>;
  /** Those that iptables-save names instead of printing them. */
  readonly unreadable: ReadonlySet<string>;
}

const NEWLINE = 10, BLANK = 32, HASH = 35, MINUS = 45, COLON = 58, STAR = 42;
const LETTER_A = 65, LETTER_C = 67, LETTER_N = 78, LETTER_P = 80;

/** Of a longer line only so much counts, and how long it is. No rule is nearly as long. */
const LINE_BYTES = 16 * 1024;
/** No line that says something by itself is longer. */
const WORDS_BYTES = 200;

const NO_LINES: readonly string[] = [];
// The hash of no rules; the lanes are those of `hashRules`.
const HIGH = 0x6d2b79f5, LOW = 0x1b873593;

/** Numbers of one chain in {@linkcode ChainNumbers}: how many rules, and both lanes of their hash. */
const PER_CHAIN = 3;
const COUNT = 0, HIGH_LANE = 1, LOW_LANE = 2;

/** What was printed of the chains of one table, without an object for each: there may be 100,000. */
class ChainNumbers {
  /** Chain → where its numbers begin. */
  readonly #starts = new Map<string, number>();
  readonly #kept = new Map<number, string[]>();
  #numbers = new Int32Array(64 * PER_CHAIN);

  names(): Iterable<string> {
    return this.#starts.keys();
  }

  /** Where its numbers begin; undefined if it was not printed. */
  find(name: string): number | undefined {
    return this.#starts.get(name);
  }

  /** A chain without rules; one that is there already begins anew. */
  add(name: string, isKept: boolean): number {
    const start = this.#starts.get(name) ?? this.#starts.size * PER_CHAIN;
    this.#starts.set(name, start);
    if (start === this.#numbers.length) {
      const more = new Int32Array(2 * start);
      more.set(this.#numbers);
      this.#numbers = more;
    }
    this.#numbers[start + COUNT] = 0;
    this.#numbers[start + HIGH_LANE] = HIGH;
    this.#numbers[start + LOW_LANE] = LOW;
    if (isKept) this.#kept.set(start, []);
    return start;
  }

  /** @param length of the whole line, of which less may be there */
  addRule(chain: number, bytes: Uint8Array, start: number, end: number, length: number): void {
    const numbers = this.#numbers;
    numbers[chain + COUNT]!++;
    let high = numbers[chain + HIGH_LANE]!;
    let low = numbers[chain + LOW_LANE]!;
    let at = start;
    // Multiply and xor over words of four bytes.
    for (; at + 4 <= end; at += 4) {
      const word = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
      high = Math.imul(high ^ word, 0x9e3779b1);
      high = (high << 15) | (high >>> 17);
      low = Math.imul(low ^ word, 0x85ebca6b);
      low = (low << 13) | (low >>> 19);
    }
    for (; at < end; at++) {
      high = Math.imul(high ^ bytes[at]!, 0x9e3779b1);
      low = Math.imul(low ^ bytes[at]!, 0x85ebca6b);
      low = (low << 13) | (low >>> 19);
    }
    // The length stands for what of a line was not kept.
    high = Math.imul(high ^ length, 0xc2b2ae35) ^ (low >>> 15);
    numbers[chain + HIGH_LANE] = high;
    numbers[chain + LOW_LANE] = Math.imul(low ^ NEWLINE, 0x27d4eb2f) ^ (high >>> 13);
  }

  /** Undefined: not to be kept. */
  kept(chain: number): string[] | undefined {
    return this.#kept.get(chain);
  }

  count(chain: number): number {
    return this.#numbers[chain + COUNT]!;
  }

  print(chain: number | undefined): number {
    const high = chain === undefined ? HIGH : this.#numbers[chain + HIGH_LANE]!;
    const low = chain === undefined ? LOW : this.#numbers[chain + LOW_LANE]!;
    return ((high >>> 0) & 0x1f_ffff) * 0x1_0000_0000 + (low >>> 0);
  }
}

type PerTable = Readonly<Record<PrintedTable, ChainNumbers>>;

/** Chain → what was printed of it. Chains that were not printed are absent. */
export class PrintedRules {
  readonly #tables: PerTable;

  constructor(tables: PerTable) {
    this.#tables = tables;
  }

  /** How many rules the chain has; null: it is not there. */
  count(table: PrintedTable, chain: string): number | null {
    const found = this.#tables[table].find(chain);
    return found === undefined ? null : this.#tables[table].count(found);
  }

  /** All that were printed. */
  chainNames(table: PrintedTable): Iterable<string> {
    return this.#tables[table].names();
  }

  /** Its `-A` lines, if it is one of those that are kept. */
  lines(table: PrintedTable, chain: string): readonly string[] {
    const found = this.#tables[table].find(chain);
    return found === undefined ? NO_LINES : this.#tables[table].kept(found) ?? NO_LINES;
  }

  /** 53 bits that stand for its lines in their order. */
  print(table: PrintedTable, chain: string): number {
    return this.#tables[table].print(this.#tables[table].find(chain));
  }
}

/**
 * Takes the text of iptables-save, or what `-S` prints of one table after the other, piece by piece. There nothing says where a table
 * begins but that each begins with the same chain.
 */
export class PrintedReader {
  readonly #kept: KeptChains;
  readonly #listed: { readonly tables: readonly PrintedTable[]; readonly first: string };
  readonly #decoder = new TextDecoder();
  #chains = noChains();
  /** As named in the text; null outside of a table. */
  #tableName: string | null = null;
  #table: PrintedTable | null = null;
  #listedTables = 0;
  /** The chain of the last rule. */
  #name = "";
  #chain: number | null = null;
  #isWhole = true;
  #ended = new Set<string>();
  #unreadable = new Set<string>();
  readonly #lines = new LineCutter(
    (bytes, start, end, length) => this.#line(bytes, start, end, length),
    LINE_BYTES,
  );

  /**
   * @param kept whose lines are kept
   * @param listed of `-S`: the tables asked for in their order, and the chain that each begins with
   */
  constructor(kept: KeptChains, listed: { tables: readonly PrintedTable[]; first: string } | null = null) {
    this.#kept = kept;
    this.#listed = listed ?? { tables: [], first: "" };
  }

  /** Forgets all that has come: another program begins to print. */
  begin(): void {
    this.#chains = noChains();
    this.#tableName = this.#table = this.#chain = null;
    this.#lines.clear();
    this.#listedTables = 0;
    this.#isWhole = true;
    this.#ended = new Set();
    this.#unreadable = new Set();
  }

  /** Takes the next bytes; they may change after the call. */
  write(bytes: Uint8Array): void {
    this.#lines.write(bytes);
  }

  /** The end of the text, if it is one of iptables-save. */
  end(): PrintedTables {
    this.#lines.end();
    return { isWhole: this.#isWhole, ended: this.#ended, unreadable: this.#unreadable };
  }

  /** The end of the text; the reader is empty then. */
  take(): PrintedRules {
    this.#lines.end();
    const printed = new PrintedRules(this.#chains);
    this.begin();
    return printed;
  }

  /** @param length of the whole line, of which less may be there */
  #line(bytes: Uint8Array, start: number, lineEnd: number, length: number): void {
    // As much as there is of one that comes in pieces.
    const end = Math.min(lineEnd, start + LINE_BYTES);
    const first = bytes[start];
    if (first === MINUS && bytes[start + 1] === LETTER_A) return this.#rule(bytes, start, end, length);
    if (first === COLON) return this.#declare(wordAt(bytes, start + 1, end));
    const words = length > WORDS_BYTES ? null : latin1(bytes, start, end).trimEnd();
    if (words === "") return;
    if (first === HASH) {
      for (const table of unreadableTables(words ?? "")) this.#unreadable.add(table);
      return;
    }
    if (first === MINUS && (bytes[start + 1] === LETTER_N || bytes[start + 1] === LETTER_P)) {
      return this.#declare(wordAt(bytes, start + 3, end));
    }
    this.#isWhole = false;
    this.#chain = null;
    if (words === null) return;
    if (first === STAR) this.#begins(words.slice(1).trim());
    else if (first === LETTER_C && words === "COMMIT") this.#commits();
  }

  #begins(table: string): void {
    this.#tableName = table;
    this.#table = table === "filter" || table === "nat" || table === "mangle" ? table : null;
  }

  #commits(): void {
    this.#isWhole = true;
    if (this.#tableName !== null) this.#ended.add(this.#tableName);
    this.#tableName = this.#table = null;
  }

  #declare(name: string): void {
    this.#isWhole = false;
    this.#chain = null;
    const { tables, first } = this.#listed;
    if (name === first && tables.length > 0) this.#table = tables[this.#listedTables++] ?? null;
    if (this.#table !== null) this.#add(this.#table, name);
  }

  #add(table: PrintedTable, name: string): number {
    return this.#chains[table].add(name, this.#kept.get(table)?.has(name) === true);
  }

  #rule(bytes: Uint8Array, start: number, end: number, length: number): void {
    this.#isWhole = false;
    const table = this.#table;
    if (table === null) return;
    const chains = this.#chains[table];
    // The rules of one chain stand together.
    if (this.#chain === null || !startsWithWord(bytes, start + 3, end, this.#name)) {
      this.#name = wordAt(bytes, start + 3, end);
      this.#chain = chains.find(this.#name) ?? this.#add(table, this.#name);
    }
    chains.addRule(this.#chain, bytes, start, end, length);
    chains.kept(this.#chain)?.push(this.#decoder.decode(bytes.subarray(start, end)));
  }
}

function noChains(): PerTable {
  return { filter: new ChainNumbers(), nat: new ChainNumbers(), mangle: new ChainNumbers() };
}

function wordAt(bytes: Uint8Array, start: number, end: number): string {
  let blank = start;
  while (blank < end && bytes[blank] !== BLANK) blank++;
  return latin1(bytes, start, blank);
}

/** Names and keywords are ASCII; anything else is not ours, however it is read. */
function latin1(bytes: Uint8Array, start: number, end: number): string {
  // A spread would iterate, which takes six times as long.
  return String.fromCharCode.apply(null, bytes.subarray(start, end) as unknown as number[]);
}

function startsWithWord(bytes: Uint8Array, start: number, end: number, word: string): boolean {
  const after = start + word.length;
  if (after > end || (after < end && bytes[after] !== BLANK)) return false;
  for (let at = 0; at < word.length; at++) if (bytes[start + at] !== word.charCodeAt(at)) return false;
  return true;
}
