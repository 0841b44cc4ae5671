/**
 * Reads what `nft -a list table` prints into the objects of the table, while it is printed.
 *
 * @module
 */
import type { Traffic } from "../model/service_traffic.ts";
import { nftSeconds } from "./nft_duration.ts";
import type { Chain } from "./nft_objects.ts";

/** A set or map as it is printed. */
export interface ListedContainer {
  /** Of a set whose elements expire; else undefined. */
  readonly timeoutSeconds: number | undefined;
  /** Key → value (`""` in a set), without comments, counters and expiry; none where elements expire. */
  readonly elements: ReadonlyMap<string, string>;
  /** Key → comment, of those elements that have one. */
  readonly comments: ReadonlyMap<string, string>;
  /** Elements that expire, as `nft -f` takes them again, e.g. `10.0.0.1 timeout 3h expires 2h59m58s92ms`. */
  readonly expiring: readonly string[];
}

/** A table as it is printed; where none is, it has no name and nothing in it. */
export interface ListedTable {
  /** Family and name, e.g. `ip kproxy`. */
  readonly name: string;
  /** The table's comment; `""` also where the kernel forgot it. */
  readonly comment: string;
  /** Why it can be neither changed nor removed: a process has claimed it, and it goes with that one. Null: none has. */
  readonly ownerProblem: string | null;
  readonly chains: ReadonlyMap<string, Chain>;
  readonly containers: ReadonlyMap<string, ListedContainer>;
  /** Chain → handles of its rules, in order. */
  readonly handles: ReadonlyMap<string, readonly number[]>;
}

const TABLE = /^table (\S+ \S+) \{(?:.* progname (\S+))?/;
const BLOCK = /^\t(chain|set|map) (\S+) \{/;
const HANDLE = /^(.*) # handle (\d+)$/;
const COMMENT = /^\t+comment "(.*)"$/;
const OWNER = /^\tflags .*\bowner\b/;
const TIMEOUT = /^\t\ttimeout (\S+)$/;
const ELEMENTS = "\t\telements = { ";
/** Between the comment and what follows it; in elements without quotes there is nothing to skip. */
const ELEMENT_COMMENT = / comment "([^"]*)"/;
/** It may have a timeout of its own. */
const EXPIRING = /^\S+(?: timeout \w+)? expires \w+$/;

class OpenContainer implements ListedContainer {
  timeoutSeconds: number | undefined;
  readonly elements = new Map<string, string>();
  readonly comments = new Map<string, string>();
  readonly expiring: string[] = [];

  /** `key`, `key : value`, `key comment "…" : value`, and with a counter between them. */
  add(element: string): void {
    if (this.timeoutSeconds !== undefined) {
      if (EXPIRING.test(element)) this.expiring.push(element);
      return;
    }
    const said = element.includes('"') ? ELEMENT_COMMENT.exec(element) : null;
    const text = said === null ? element : element.replace(said[0], "");
    const colon = text.indexOf(" : ");
    const left = colon < 0 ? text : text.slice(0, colon);
    const counter = left.indexOf(" counter ");
    const key = counter < 0 ? left : left.slice(0, counter);
    this.elements.set(key, colon < 0 ? "" : text.slice(colon + 3));
    if (said?.[1] !== undefined) this.comments.set(key, said[1]);
  }
}

class OpenTable implements ListedTable {
  comment = "";
  name = "";
  program: string | undefined;
  isOwned = false;
  readonly chains = new Map<string, { name: string; hook?: string; readonly rules: string[] }>();
  readonly containers = new Map<string, OpenContainer>();
  readonly handles = new Map<string, number[]>();

  get ownerProblem(): string | null {
    if (!this.isOwned) return null;
    const who = this.program === undefined ? "another process" : `another process (${this.program})`;
    return `table ${this.name} belongs to ${who} (flags owner), and nobody else may change or remove it until that ends`;
  }
}

/** Takes the text in pieces, of one table or of a whole ruleset. */
export class NftTableReader {
  /** Family and name of the only table that is read, e.g. `ip kproxy`; null: whatever comes. */
  readonly #wanted: string | null;
  #decoder = new TextDecoder();
  #table = new OpenTable();
  #isSkipped = false;
  #chain: string | null = null;
  #container: OpenContainer | null = null;
  #inElements = false;
  /** The beginning of a line whose end has not come. */
  #open = "";

  /** @param wanted family and name of the table that is read, others are passed over; default: there is only one */
  constructor(wanted: string | null = null) {
    this.#wanted = wanted;
  }

  /** What came before counts no more. */
  begin(): void {
    this.#decoder = new TextDecoder();
    this.#table = new OpenTable();
    this.#chain = this.#container = null;
    this.#inElements = this.#isSkipped = false;
    this.#open = "";
  }

  /** Takes the next bytes; they may change after the call. */
  write(bytes: Uint8Array): void {
    this.text(this.#decoder.decode(bytes, { stream: true }));
  }

  /** Takes the next piece of the text. */
  text(text: string): void {
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      this.#line(this.#open + text.slice(start, end));
      this.#open = "";
      start = end + 1;
    }
    this.#open += text.slice(start);
  }

  /** The text is at its end. */
  end(): ListedTable {
    this.text(this.#decoder.decode());
    if (this.#open !== "") this.#line(this.#open);
    return this.#table;
  }

  #line(line: string): void {
    if (this.#isSkipped) this.#isSkipped = line !== "}";
    else if (this.#inElements) this.#elementLine(line.trimStart());
    else if (line === "\t}") this.#chain = this.#container = null;
    else if (this.#chain !== null) this.#chainLine(line.trim(), this.#chain);
    else if (this.#container !== null) this.#setLine(line, this.#container);
    else this.#tableLine(line);
  }

  #tableLine(line: string): void {
    const table = this.#table;
    const [, kind, name = ""] = BLOCK.exec(line) ?? [];
    if (kind === "chain") {
      this.#chain = name;
      table.chains.set(name, { name, rules: [] });
      table.handles.set(name, []);
    } else if (kind !== undefined) {
      this.#container = new OpenContainer();
      table.containers.set(name, this.#container);
    } else if (line.startsWith("table ")) {
      const [, name = "", program] = TABLE.exec(line) ?? [];
      this.#isSkipped = this.#wanted !== null && name !== this.#wanted;
      if (!this.#isSkipped) [table.name, table.program] = [name, program];
    } else if (OWNER.test(line)) table.isOwned = true;
    else table.comment = COMMENT.exec(line)?.[1] ?? table.comment;
  }

  #chainLine(text: string, name: string): void {
    const chain = this.#table.chains.get(name);
    const [, rule, handle] = HANDLE.exec(text) ?? [];
    if (chain === undefined) return;
    if (rule !== undefined) {
      chain.rules.push(rule);
      this.#table.handles.get(name)?.push(Number(handle));
    } else if (text.startsWith("type ")) chain.hook = text;
  }

  #setLine(line: string, container: OpenContainer): void {
    const timeout = TIMEOUT.exec(line)?.[1];
    if (timeout !== undefined) container.timeoutSeconds = nftSeconds(timeout) ?? 0;
    if (!line.startsWith(ELEMENTS)) return;
    this.#inElements = true;
    this.#elementLine(line.slice(ELEMENTS.length));
  }

  /** One or several elements; the last line ends with ` }`, the others with a comma. */
  #elementLine(text: string): void {
    const isLast = text.endsWith(" }");
    const list = isLast ? text.slice(0, -2) : text.endsWith(",") ? text.slice(0, -1) : text;
    for (const element of splitElements(list)) this.#container?.add(element);
    if (isLast) this.#inElements = false;
  }
}

/** It never looks beyond the element: a line may have 100,000 of them. */
const QUOTING_ELEMENT = /(?:[^",]|"[^"]*"|,(?! ))+/g;

function splitElements(list: string): readonly string[] {
  if (!list.includes('"')) return list.split(", ");
  // A comment may hold the separator.
  return (list.match(QUOTING_ELEMENT) ?? []).map((element) => element.trimStart());
}

/** What `nft -a list table` printed. */
export function parseTable(text: string): ListedTable {
  const reader = new NftTableReader();
  reader.text(text);
  return reader.end();
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
