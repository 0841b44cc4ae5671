/**
 * What `nft -a list table` prints, as data.
 *
 * @module
 */
import type { Traffic } from "../../../model/service_traffic.ts";
import { nftSeconds } from "../../../netfilter/nft_duration.ts";
import { isAffinitySet } from "../plan/chains.ts";
import type { AffinitySet, ObservedTable } from "../plan/ruleset.ts";

const BLOCK = /^\t(chain|set|map) (\S+) \{/;
const HANDLE = /^(.*) # handle (\d+)$/;
const COMMENT = /^\t+comment "(.*)"$/;
const TIMEOUT = /^\t\ttimeout (\S+)$/;
const ELEMENTS = "\t\telements = { ";
/** Between the comment and what follows it; in elements without quotes there is nothing to skip. */
const ELEMENT_COMMENT = / comment "([^"]*)"/;

/** Takes the elements of one set or map, as printed, without counters and expiry; a set's have the value `""`. */
export interface ElementSink {
  set(key: string, value: string, comment: string | undefined): unknown;
}

/** What is collected while the lines go by. */
class TableReader<Elements extends ElementSink> {
  comment = "";
  readonly chains = new Map<string, { readonly text: string; readonly handle: number }[]>();
  readonly hooks = new Map<string, string>();
  readonly elements = new Map<string, Elements>();
  readonly affinitySets = new Map<string, number>();
  readonly #newElements: () => Elements;
  #kind = "";
  #name = "";
  #inElements = false;
  /** The beginning of a line whose end has not come. */
  #open = "";

  constructor(newElements: () => Elements) {
    this.#newElements = newElements;
  }

  /** Takes the next piece of the text. */
  write(text: string): void {
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      this.#line(this.#open + text.slice(start, end));
      this.#open = "";
      start = end + 1;
    }
    this.#open += text.slice(start);
  }

  /** The text is at its end. */
  end(): this {
    if (this.#open !== "") this.#line(this.#open);
    this.#open = "";
    return this;
  }

  #line(line: string): void {
    if (this.#inElements) this.#elementLine(line.trimStart());
    else if (this.#kind === "") this.#tableLine(line);
    else if (line === "\t}") this.#kind = "";
    else if (this.#kind === "chain") this.#chainLine(line);
    else this.#setLine(line);
  }

  #tableLine(line: string): void {
    const block = BLOCK.exec(line);
    if (block === null) {
      this.comment = COMMENT.exec(line)?.[1] ?? this.comment;
      return;
    }
    this.#kind = block[1]!;
    this.#name = block[2]!;
    if (this.#kind === "chain") this.chains.set(this.#name, []);
    else if (isAffinitySet(this.#name)) this.affinitySets.set(this.#name, 0);
    else this.elements.set(this.#name, this.#newElements());
  }

  #chainLine(line: string): void {
    const text = line.trim();
    const rule = HANDLE.exec(text);
    if (rule !== null) this.chains.get(this.#name)?.push({ text: rule[1]!, handle: Number(rule[2]) });
    else if (text.startsWith("type ")) this.hooks.set(this.#name, text);
  }

  #setLine(line: string): void {
    const timeout = TIMEOUT.exec(line)?.[1];
    if (timeout !== undefined) this.affinitySets.set(this.#name, nftSeconds(timeout) ?? 0);
    if (!line.startsWith(ELEMENTS)) return;
    this.#inElements = true;
    this.#elementLine(line.slice(ELEMENTS.length));
  }

  /** One or several elements; the last line ends with ` }`, the others with a comma. */
  #elementLine(text: string): void {
    const isLast = text.endsWith(" }");
    const elements = this.elements.get(this.#name);
    if (elements !== undefined) {
      const list = isLast ? text.slice(0, -2) : text.endsWith(",") ? text.slice(0, -1) : text;
      for (const element of splitElements(list)) {
        const { key, value, comment } = parseElement(element);
        elements.set(key, value, comment);
      }
    }
    if (isLast) this.#inElements = false;
  }
}

/** One element of a set or map, as it is printed. */
interface PrintedElement {
  readonly key: string;
  readonly value: string;
  readonly comment: string | undefined;
}

/** It never looks beyond the element: a line may have 100,000 of them. */
const QUOTING_ELEMENT = /(?:[^",]|"[^"]*"|,(?! ))+/g;

function splitElements(list: string): readonly string[] {
  if (!list.includes('"')) return list.split(", ");
  // A comment may hold the separator.
  return (list.match(QUOTING_ELEMENT) ?? []).map((element) => element.trimStart());
}

/** `key`, `key : value`, `key comment "…" : value`, and with a counter between them. */
function parseElement(element: string): PrintedElement {
  const said = element.includes('"') ? ELEMENT_COMMENT.exec(element) : null;
  const text = said === null ? element : element.replace(said[0], "");
  const colon = text.indexOf(" : ");
  const left = colon < 0 ? text : text.slice(0, colon);
  const counter = left.indexOf(" counter ");
  return {
    key: counter < 0 ? left : left.slice(0, counter),
    value: colon < 0 ? "" : text.slice(colon + 3),
    comment: said?.[1],
  };
}

/** Up to the first chain, set or map: `table ip kproxy { # handle 1 progname nft`, then its flags and its comment. */
const HEAD = /^table (\S+ \S+) \{.*\n(?:\t(?!chain |set |map ).*\n)*/;

/**
 * Why a table that `nft -a list table` printed can be neither changed nor removed: some process has claimed it, and it goes with that one.
 * Null if nobody has.
 */
export function ownerProblem(text: string): string | null {
  const [head, table] = HEAD.exec(text) ?? [];
  if (head === undefined || !/^\tflags .*\bowner\b/m.test(head)) return null;
  const program = / progname (\S+)/.exec(head)?.[1];
  const who = program === undefined ? "another process" : `another process (${program})`;
  return `table ${table} belongs to ${who} (flags owner), and nobody else may change or remove it until that ends`;
}

const COUNTED = /^\s*(\S.*?) counter packets (\d+) bytes (\d+)/;

/** What `nft list set` printed of a set of counters: destination → what was counted. */
export function parseCounters(text: string): ReadonlyMap<string, Traffic> {
  const counters = new Map<string, Traffic>();
  for (const element of text.split(/[{,\n]/)) {
    const [, destination, packets, bytes] = COUNTED.exec(element) ?? [];
    if (destination !== undefined) {
      counters.set(destination, { packets: Number(packets), bytes: Number(bytes) });
    }
  }
  return counters;
}

/** A set of clients, and who is in it. */
export interface ObservedClients extends AffinitySet {
  /** As `nft -f` takes them again, e.g. `10.0.0.1 expires 2h59m58s92ms` or `10.0.0.1 timeout 3h expires 2h59m`. */
  readonly clients: readonly string[];
}

const SET = /^\tset (\S+) \{.*\n((?:\t\t.*\n)*)\t\}$/gm;
/** It may have a timeout of its own. */
const CLIENT = /(?<![^\s{,])[\da-f.:]+(?: timeout \w+)? expires \w+(?![^\s,])/g;

/** Who is in the affinity sets that `nft -a list table` printed; sets without clients are left out. */
export function parseClients(text: string): readonly ObservedClients[] {
  const found: ObservedClients[] = [];
  for (const [, name = "", body = ""] of text.matchAll(SET)) {
    const timeout = /^\t\ttimeout (\S+)$/m.exec(body)?.[1];
    if (timeout === undefined || !isAffinitySet(name)) continue;
    const clients = Array.from(body.matchAll(CLIENT), ([client]) => client);
    if (clients.length > 0) found.push({ name, timeoutSeconds: nftSeconds(timeout) ?? 0, clients });
  }
  return found;
}

/** What was read of a table, its elements as `Elements` took them. */
export type ReadTable<Elements> = Omit<ObservedTable, "elements" | "elementComments"> & {
  readonly elements: ReadonlyMap<string, Elements>;
};

/** Reads what `nft -a list table` prints of our table while it is printed. Handles are those of the rules. */
export class TableStream<Elements extends ElementSink> {
  readonly #newElements: () => Elements;
  #decoder = new TextDecoder();
  #reader: TableReader<Elements>;
  #bytes = 0;

  /** @param newElements makes what takes the elements of one set or map */
  constructor(newElements: () => Elements) {
    this.#newElements = newElements;
    this.#reader = new TableReader(newElements);
  }

  /** How much was printed. */
  get bytes(): number {
    return this.#bytes;
  }

  /** What came before counts no more. */
  begin(): void {
    this.#decoder = new TextDecoder();
    this.#reader = new TableReader(this.#newElements);
    this.#bytes = 0;
  }

  /** Takes the next bytes; they may change after the call. */
  write(bytes: Uint8Array): void {
    this.#bytes += bytes.byteLength;
    this.#reader.write(this.#decoder.decode(bytes, { stream: true }));
  }

  /** The end of the text; nothing at all is a table without anything. */
  end(): ReadTable<Elements> {
    this.#reader.write(this.#decoder.decode());
    return this.#reader.end();
  }
}

/** Every element of one set or map. */
class AllElements implements ElementSink {
  readonly values = new Map<string, string>();
  readonly comments = new Map<string, string>();

  set(key: string, value: string, comment: string | undefined): void {
    this.values.set(key, value);
    if (comment !== undefined) this.comments.set(key, comment);
  }
}

/** What `nft -a list table` printed of our table, with every element; no text is a table without anything. */
export function parseTable(text: string): ObservedTable {
  const reader = new TableReader(() => new AllElements());
  reader.write(text);
  const { comment, chains, hooks, affinitySets, elements } = reader.end();
  const all = [...elements];
  return {
    comment,
    chains,
    hooks,
    affinitySets,
    elements: new Map(all.map(([name, { values }]) => [name, values])),
    elementComments: new Map(
      all.filter(([, { comments }]) => comments.size > 0).map(([name, { comments }]) => [name, comments]),
    ),
  };
}
