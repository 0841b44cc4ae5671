/**
 * Reads what `nft list` prints, with or without handles and elements, into the objects of its tables, as the text arrives. What cannot
 * be read is reported with its place, and everything around it is read all the same.
 *
 * @module
 */
import type { Traffic } from "../model/service_traffic.ts";
import type { Chain } from "./nft_objects.ts";

/** A part of the listing that cannot be read. */
export interface ListingProblem {
  /** E.g. `table inet filter chain input`. */
  readonly place: string;
  /** E.g. `line 12: "…" is not understood`. */
  readonly message: string;
}

/** A set or map of a listing. */
export interface ListedContainer {
  /** Set or map. */
  readonly kind: "set" | "map";
  /** E.g. `type ipv4_addr . inet_service : verdict`, `typeof ip daddr`; `""` if it was not printed. */
  readonly type: string;
  /** True if an element may be a network or a range, e.g. `10.0.0.0/8`, `80-90`. */
  readonly hasRanges: boolean;
  /** Timeout of its elements; undefined: the set has none. */
  readonly timeoutSeconds: number | undefined;
  /** Key → value (`""` in a set), without comments, counters and expiry. */
  readonly elements: ReadonlyMap<string, string>;
  /** Key → comment, of elements that have one. */
  readonly comments: ReadonlyMap<string, string>;
  /** Key → counter, of elements that have one. */
  readonly counters: ReadonlyMap<string, Traffic>;
  /** Elements that expire, as `nft -f` takes them again, e.g. `10.0.0.1 timeout 3h expires 2h59m58s92ms`. */
  readonly expiring: readonly string[];
}

/** A table of a listing; a missing table is one without name and objects. */
export interface ListedTable {
  /** Family and name, e.g. `ip kproxy`. */
  readonly name: string;
  /** The table's comment; `""` also where the kernel lost it. */
  readonly comment: string;
  /** Why the table can be neither changed nor removed: a process owns it until it exits. Null: no owner. */
  readonly ownerProblem: string | null;
  /** Chains by name. */
  readonly chains: ReadonlyMap<string, Chain>;
  /** Sets and maps by name. */
  readonly containers: ReadonlyMap<string, ListedContainer>;
  /** Chain → handles of its rules, in order; 0 where the listing has none. */
  readonly handles: ReadonlyMap<string, readonly number[]>;
}

/** Everything that a listing holds. */
export interface NftListing {
  /** Tables in the order of the text. */
  readonly tables: readonly ListedTable[];
  /** Parts that cannot be read. */
  readonly problems: readonly ListingProblem[];
}

const TABLE = /^table (\S+ \S+) \{(?:.* progname (\S+))?/;
const BLOCK = /^(chain|set|map) (\S+) \{/;
/** Blocks of stateful objects and the like: rules may name them, and none decides about a packet's path. */
const OTHER_BLOCK = /^(?:counter|quota|limit|flowtable|secmark|synproxy|ct \w+) .*\{(?: # handle \d+)?$/;
const HANDLE = /^(.*) # handle (\d+)$/;
const COMMENT = /^comment "(.*)"$/;
const OWNER = /^flags .*\bowner\b/;
const ELEMENTS = "elements = {";
/** An element's comment; elements without quotes have none to skip. */
const ELEMENT_COMMENT = / comment "([^"]*)"/;
const DECORATION = / (?:counter|timeout|expires|limit|quota|last) /;
const COUNTED = / counter packets (\d+) bytes (\d+)/;
/** An element that expires; it may have a timeout of its own. */
const EXPIRING = /^\S+(?: timeout \w+)? expires \w+$/;

/** A set or map while it is read. */
export class OpenContainer implements ListedContainer {
  readonly kind: "set" | "map";
  type = "";
  hasRanges = false;
  timeoutSeconds: number | undefined;
  readonly elements = new Map<string, string>();
  readonly comments = new Map<string, string>();
  readonly counters = new Map<string, Traffic>();
  readonly expiring: string[] = [];

  constructor(kind: "set" | "map") {
    this.kind = kind;
  }

  /** Takes one line of the definition, e.g. `timeout 1h`. */
  define(text: string): void {
    if (text.startsWith("type")) this.type = text;
    else if (text.startsWith("timeout ")) {
      this.timeoutSeconds = nftSeconds(text.slice("timeout ".length)) ?? 0;
    } else if (text.startsWith("flags ")) this.hasRanges = /\binterval\b/.test(text);
  }

  add(element: string): void {
    if (this.timeoutSeconds !== undefined && EXPIRING.test(element)) this.expiring.push(element);
    const { key, value, comment, counted } = parseElement(element);
    this.elements.set(key, value);
    if (comment !== undefined) this.comments.set(key, comment);
    if (counted !== undefined) this.counters.set(key, counted);
  }
}

/** An element of a listing: `key`, `key : value`, `key comment "…" : value`, with counter, timeout or expiry between them. */
export function parseElement(
  element: string,
): { readonly key: string; readonly value: string; readonly comment?: string; readonly counted?: Traffic } {
  const said = element.includes('"') ? ELEMENT_COMMENT.exec(element) : null;
  const text = said === null ? element : element.replace(said[0], "");
  const colon = text.indexOf(" : ");
  const left = colon < 0 ? text : text.slice(0, colon);
  const value = colon < 0 ? "" : text.slice(colon + 3);
  const decoration = left.search(DECORATION);
  if (decoration < 0 && said === null) return { key: left, value };
  const [, packets, bytes] = decoration < 0 ? [] : COUNTED.exec(left) ?? [];
  return {
    key: decoration < 0 ? left : left.slice(0, decoration),
    value,
    ...(said?.[1] === undefined ? {} : { comment: said[1] }),
    ...(packets === undefined ? {} : { counted: { packets: Number(packets), bytes: Number(bytes) } }),
  };
}

/** A table while it is read. */
export class OpenTable implements ListedTable {
  comment = "";
  name = "";
  program: string | undefined;
  isOwned = false;
  readonly chains = new Map<string, { name: string; hook?: string; readonly rules: string[] }>();
  readonly containers = new Map<string, OpenContainer>();
  readonly handles = new Map<string, number[]>();

  constructor(name = "") {
    this.name = name;
  }

  get ownerProblem(): string | null {
    if (!this.isOwned) return null;
    const who = this.program === undefined ? "another process" : `another process (${this.program})`;
    return `table ${this.name} belongs to ${who} (flags owner), and no other program may change or remove it until that ends`;
  }
}

type Block =
  | { readonly kind: "chain"; readonly name: string; readonly rules: string[]; readonly handles: number[] }
  | { readonly kind: "container"; readonly container: OpenContainer }
  | { readonly kind: "other"; depth: number };

/** Reads a listing of one table or of a whole ruleset, in pieces. */
export class NftTableReader {
  /** Family and name of the only table to read, e.g. `ip kproxy`; null: all tables. */
  readonly #wanted: string | null;
  readonly #decoder = new TextDecoder();
  readonly #tables: OpenTable[] = [];
  readonly #problems: ListingProblem[] = [];
  #table: OpenTable | null = null;
  #isSkipped = false;
  #block: Block | null = null;
  #place = "";
  #inElements = false;
  #lineNumber = 0;
  /** The beginning of a line that is still incomplete. */
  #open = "";

  /** @param wanted family and name of the only table to read, others are skipped; default: all are read */
  constructor(wanted: string | null = null) {
    this.#wanted = wanted;
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

  /** Ends the text, and yields its first table. */
  end(): ListedTable {
    return this.endAll().tables[0] ?? NO_TABLE;
  }

  /** Ends the text, and yields all tables. */
  endAll(): NftListing {
    this.text(this.#decoder.decode());
    if (this.#open !== "") this.#line(this.#open);
    this.#open = "";
    if (this.#table !== null) this.#problem("the text ends within it");
    return { tables: this.#tables, problems: this.#problems };
  }

  #problem(message: string): void {
    this.#problems.push({ place: this.#place, message: `line ${this.#lineNumber}: ${message}` });
  }

  #line(line: string): void {
    this.#lineNumber++;
    if (this.#isSkipped) {
      this.#isSkipped = !line.startsWith("}");
      return;
    }
    const text = line.trim();
    if (this.#inElements) this.#elementLine(text);
    else if (text === "" || text.startsWith("#")) return;
    else if (this.#block !== null) this.#blockLine(text, this.#block);
    else if (this.#table !== null) this.#tableLine(text, this.#table);
    else this.#begin(text);
  }

  #begin(text: string): void {
    const [, name, program] = TABLE.exec(text) ?? [];
    this.#place = name === undefined ? "nftables" : `table ${name}`;
    if (name === undefined) return this.#problem(`"${text}" begins no table`);
    if (this.#wanted !== null && name !== this.#wanted) {
      this.#isSkipped = !text.endsWith("}");
      return;
    }
    this.#table = new OpenTable(name);
    this.#table.program = program;
    this.#tables.push(this.#table);
  }

  #tableLine(text: string, table: OpenTable): void {
    if (text === "}") {
      this.#table = null;
      return;
    }
    const [, kind, name = ""] = BLOCK.exec(text) ?? [];
    if (kind === "chain") {
      const rules: string[] = [];
      const handles: number[] = [];
      table.chains.set(name, { name, rules });
      table.handles.set(name, handles);
      this.#block = { kind, name, rules, handles };
    } else if (kind === "set" || kind === "map") {
      const container = new OpenContainer(kind);
      table.containers.set(name, container);
      this.#block = { kind: "container", container };
    } else if (OTHER_BLOCK.test(text)) this.#block = { kind: "other", depth: 1 };
    else if (OWNER.test(text)) table.isOwned = true;
    else if (COMMENT.test(text)) table.comment = COMMENT.exec(text)?.[1] ?? "";
    else if (!text.startsWith("flags ")) this.#problem(`"${text}" is not understood`);
    this.#place = kind === undefined ? `table ${table.name}` : `table ${table.name} ${kind} ${name}`;
  }

  #blockLine(text: string, block: Block): void {
    if (block.kind === "other") block.depth += text.endsWith("{") ? 1 : text.startsWith("}") ? -1 : 0;
    if (block.kind === "other" ? block.depth === 0 : text === "}") this.#block = null;
    else if (block.kind === "chain") this.#chainLine(text, block);
    else if (block.kind === "container") {
      if (!text.startsWith(ELEMENTS)) return block.container.define(text);
      this.#inElements = true;
      this.#elementLine(text.slice(ELEMENTS.length).trimStart());
    }
  }

  #chainLine(text: string, { name, rules, handles }: Block & { readonly kind: "chain" }): void {
    const chain = this.#table?.chains.get(name);
    const [, rule = text, handle = "0"] = HANDLE.exec(text) ?? [];
    if (chain === undefined || (handle === "0" && text.startsWith('comment "'))) return;
    if (text.startsWith("type ")) chain.hook = text;
    else {
      rules.push(rule);
      handles.push(Number(handle));
    }
  }

  /** A line of elements; the last line ends with `}`, the others with a comma. */
  #elementLine(text: string): void {
    const isLast = text.endsWith("}");
    const list = isLast ? text.slice(0, -1).trimEnd() : text.endsWith(",") ? text.slice(0, -1) : text;
    const { container } = this.#block?.kind === "container" ? this.#block : { container: null };
    for (const element of splitElements(list)) container?.add(element);
    if (isLast) this.#inElements = false;
  }
}

/** One element. It never looks beyond the element: a line may have 100,000. */
const QUOTING_ELEMENT = /(?:[^",]|"[^"]*"|,(?! ))+/g;

/** Elements of a list, which is given without its braces. */
export function splitElements(list: string): readonly string[] {
  if (list === "") return [];
  if (!list.includes('"')) return list.split(", ");
  // A comment may contain the separator.
  return (list.match(QUOTING_ELEMENT) ?? []).map((element) => element.trim());
}

/** A missing table: no name, no objects. */
export const NO_TABLE: ListedTable = new OpenTable();

/** Reads the output of `nft list table`. */
export function parseTable(text: string): ListedTable {
  const reader = new NftTableReader();
  reader.text(text);
  return reader.end();
}

/** Reads the output of `nft list ruleset`, with tables of any program. */
export function parseNftListing(text: string): NftListing {
  const reader = new NftTableReader();
  reader.text(text);
  return reader.endAll();
}

/** Reads the output of `nft list set` for a set of counters: destination → its counter. */
export function parseCounters(text: string): ReadonlyMap<string, Traffic> {
  return new Map(parseTable(text).containers.values().flatMap(({ counters }) => counters));
}

/** Tables of iptables; the nft variant keeps its rules in nftables tables of these names. */
export const IPTABLES_TABLES: ReadonlySet<string> = new Set(["raw", "mangle", "nat", "filter", "security"]);

/** Tables that iptables-nft manages, e.g. `ip filter`, as nft notes in front of them. */
export function tablesOfIptables(text: string): ReadonlySet<string> {
  return new Set(
    Array.from(text.matchAll(/table (ip6? \S+) is managed by iptables-nft/g), ([, name = ""]) => name),
  );
}

/** A base chain: one that is attached to a netfilter hook. */
export interface BaseChain {
  /** Family of the table: `ip`, `ip6`, `inet`, … */
  readonly family: string;
  readonly table: string;
  readonly name: string;
  /** `filter`, `nat` or `route`. */
  readonly type: string;
  /** `prerouting`, `input`, `forward`, `output`, `postrouting`, … */
  readonly hook: string;
  /** Lower priorities run first. */
  readonly priority: number;
  /** Verdict for packets that no rule of the chain decides. */
  readonly policy: "accept" | "drop";
}

/** The base chains in the output of `nft list chains` or `nft list ruleset`. */
export function parseBaseChains(text: string): readonly BaseChain[] {
  return parseNftListing(text).tables.flatMap(({ name: label, chains }) =>
    [...chains.values()].flatMap(({ name, hook }): BaseChain[] => {
      const base = hook === undefined ? null : parseHook(hook);
      const [family = "", table = ""] = label.split(" ");
      return base === null ? [] : [{ family, table: plain(table), name: plain(name), ...base }];
    })
  );
}

function plain(name: string): string {
  return name.replaceAll('"', "");
}

/** nft's names for priorities, where it prints no numbers. */
const PRIORITIES: ReadonlyMap<string, number> = new Map([
  ["raw", -300],
  ["mangle", -150],
  ["dstnat", -100],
  ["filter", 0],
  ["security", 50],
  ["srcnat", 100],
]);
const HOOK =
  /^type (\w+) hook (\w+)\b.*?\bpriority (-?\w+)(?: ([+-]) (\d+))? ?;(?: policy (accept|drop) ?;)?(?: comment "[^"]*" ?;)?$/;

/** Reads a base chain's declaration, e.g. `type nat hook prerouting priority dstnat - 10; policy accept;`; null for anything else. */
export function parseHook(text: string): Omit<BaseChain, "family" | "table" | "name"> | null {
  const [, type = "", hook = "", base = "", sign, offset = "0", policy] = HOOK.exec(text) ?? [];
  const start = /^-?\d+$/.test(base) ? Number(base) : PRIORITIES.get(base);
  if (start === undefined) return null;
  const priority = sign === "-" ? start - Number(offset) : start + Number(offset);
  return { type, hook, priority, policy: policy === "drop" ? "drop" : "accept" };
}

/** A rule and its jump targets: this much can be read from any program's rules, whatever words they use. */
export interface NftListedRule {
  readonly handle: number;
  readonly text: string;
  /** Chains that the rule jumps or goes to: by its verdict, or by elements of an anonymous map. */
  readonly targets: readonly string[];
}

/** A chain with its rules' targets. */
export interface NftListedChain {
  /** True for a base chain. */
  readonly isHooked: boolean;
  readonly rules: readonly NftListedRule[];
}

/** The chains of a table that was listed with handles, by name, in the order of the text. */
export function listedChains({ chains, handles }: ListedTable): ReadonlyMap<string, NftListedChain> {
  return new Map(
    chains.values().map(({ name, hook, rules }) => [name, {
      isHooked: hook !== undefined,
      rules: rules.map((text, at) => {
        // Quoted text is a comment or the name of a device.
        const targets = text.replaceAll(/"[^"]*"/g, "").matchAll(/(?:^|\s)(?:jump|goto) ([^\s,]+)/g);
        return {
          handle: handles.get(name)?.[at] ?? 0,
          text,
          targets: Array.from(targets, ([, target = ""]) => target),
        };
      }),
    }]),
  );
}

/** A duration, with at most one part per unit. */
const DURATION = /^(?:\d{1,10}(?:ms|[smhd])){1,5}$/;
const DURATION_PART = /(\d+)(ms|[smhd])/g;
const UNIT_SECONDS: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** Seconds: `600s`, `1h30m`, `2h59m58s92ms`; null for anything else. */
export function nftSeconds(text: string): number | null {
  if (!DURATION.test(text)) return null;
  return [...text.matchAll(DURATION_PART)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * (UNIT_SECONDS[unit ?? ""] ?? 0),
    0,
  );
}
