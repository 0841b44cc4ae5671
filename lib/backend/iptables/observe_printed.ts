/**
 * Reads what iptables prints of chains: how many rules each has, and a number that stands for their text.
 *
 * @module
 */
import { hashRules } from "../../netfilter/rules_hash.ts";
import { CANARY_CHAIN } from "./observe_canary.ts";

/** The tables that hold something of ours: in mangle that is its canary. */
export type PrintedTable = "filter" | "nat" | "mangle";
type PerPrintedTable<T> = Readonly<Record<PrintedTable, T>>;

/** One chain as printed. */
export interface PrintedChain {
  readonly count: number;
  /** Where its rules stand in the text. */
  readonly start: number;
  readonly end: number;
}

/** Chain → what was printed of it. Chains that were not printed are absent. */
export class PrintedRules {
  readonly #text: string;
  readonly #chains: PerPrintedTable<ReadonlyMap<string, PrintedChain>>;

  constructor(text: string, chains: PerPrintedTable<ReadonlyMap<string, PrintedChain>>) {
    this.#text = text;
    this.#chains = chains;
  }

  /** How many rules the chain has; null: it is not there. */
  count(table: PrintedTable, chain: string): number | null {
    return this.#chains[table].get(chain)?.count ?? null;
  }

  /** Its `-A` lines. */
  lines(table: PrintedTable, chain: string): readonly string[] {
    const text = this.#rules(table, chain);
    return text === "" ? [] : text.split("\n");
  }

  /** `hashRules` of its lines as one text. */
  print(table: PrintedTable, chain: string): number {
    return hashRules([this.#rules(table, chain)]);
  }

  #rules(table: PrintedTable, chain: string): string {
    const found = this.#chains[table].get(chain);
    return found === undefined ? "" : this.#text.slice(found.start, found.end);
  }
}

const COLON = 58, STAR = 42, MINUS = 45, LETTER_A = 65, LETTER_N = 78, LETTER_P = 80;

/**
 * Reads the text of iptables-save, or what `-S` printed of one table after the other. There nothing says where a table begins but that
 * each begins with the canary; `tables` are those asked for, in their order.
 */
export function readPrinted(text: string, tables: readonly PrintedTable[] = []): PrintedRules {
  const chains = {
    filter: new Map<string, PrintedChain>(),
    nat: new Map<string, PrintedChain>(),
    mangle: new Map<string, PrintedChain>(),
  };
  let table: PrintedTable | null = null;
  let asked = -1;
  for (let start = 0; start < text.length;) {
    const newline = text.indexOf("\n", start);
    const end = newline < 0 ? text.length : newline;
    const first = text.charCodeAt(start);
    const option = first === MINUS ? text.charCodeAt(start + 1) : 0;
    if (first === STAR) table = tableNamed(text.slice(start + 1, end).trim());
    else if (first === COLON || option === LETTER_N || option === LETTER_P) {
      const name = wordAt(text, start + (first === COLON ? 1 : 3), end);
      if (option === LETTER_N && name === CANARY_CHAIN) table = tables[++asked] ?? null;
      if (table !== null) chains[table].set(name, { count: 0, start: end, end });
    } else if (option === LETTER_A && table !== null) {
      const name = wordAt(text, start + 3, end);
      const known: PrintedChain | undefined = chains[table].get(name);
      // The rules of one chain stand together.
      const isFirst = known === undefined || known.count === 0;
      chains[table].set(name, { count: (known?.count ?? 0) + 1, start: isFirst ? start : known.start, end });
    }
    start = end + 1;
  }
  return new PrintedRules(text, chains);
}

function tableNamed(name: string): PrintedTable | null {
  return name === "filter" || name === "nat" || name === "mangle" ? name : null;
}

function wordAt(text: string, start: number, end: number): string {
  const blank = text.indexOf(" ", start);
  return text.slice(start, blank < 0 || blank > end ? end : blank);
}
