/**
 * Which Services are laid out alike: all that rules say of one is what they say of the other, with other addresses and names. What becomes
 * of packets to one then tells what becomes of packets to the other, and of thousands only some need to be walked.
 *
 * @module
 */
import { type Cidr, cidrContains, isLoopback, parseCidr, parseIp } from "../../model/ip.ts";
import type { Endpoint, ServicePort } from "../../model/state.ts";
import type { NftTable } from "../../netfilter/nft_tables.ts";
import type { HeldRules } from "../../sim/held_rules.ts";

/** Rules beyond these make every Service a case of its own: their addresses would have to be held against each endpoint. */
const MAX_RULES = 2_000;
const MAX_NETWORKS = 100;
const ADDRESS = /(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f]*)(\/\d+)?/g;
const COMMENT = / comment "[^"]*"/g;
/** Which endpoint has which number does not matter where the number is by chance. */
const CHOICES = /(numgen random mod \d+ v?map \{ ?)([^}]*?)( ?\})/g;
const LITERAL_PORT = /\b(?:[sd]port (?:!= )?[{\d]|--[sd]ports? )/;

interface Entry {
  readonly table: NftTable;
  /** Table and container. */
  readonly place: string;
  readonly parts: readonly string[];
  readonly value: string;
}

/** Tells shapes of the Services of one family, under rules of several sides. */
export class ServiceShapes {
  readonly #nodeAddresses: ReadonlySet<string>;
  /** Address, or node port, → elements whose keys name it. */
  readonly #entries: ReadonlyMap<string, readonly Entry[]>;
  /** Addresses and networks that rules of no single Service name; null: too many, or what looks at more than addresses. */
  readonly #named: { readonly addresses: ReadonlySet<string>; readonly networks: readonly Cidr[] } | null;
  readonly #classes = new Map<string, string | null>();

  constructor(sides: readonly HeldRules[], nodeAddresses: readonly string[]) {
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#named = namedAddresses(sides);
    this.#entries = this.#named === null ? new Map() : entriesOf(sides);
  }

  /** Equal texts for Services that are laid out alike; null: it may be like no other. */
  shapeOf(port: ServicePort, endpoints: readonly Endpoint[]): string | null {
    if (this.#named === null || port.stickyMaxAgeSeconds > 0) return null;
    const own = new Names();
    const destinations = [port.clusterIP, ...port.externalIPs, ...port.loadBalancerVIPs];
    const words: string[] = [port.protocol, String(port.port)];
    for (
      const [ip, letter] of [
        ...destinations.map((one) => [one, "D"] as const),
        ...endpoints.map((one) => [one.ip, "E"] as const),
      ]
    ) {
      const kind = this.#classOf(ip);
      if (kind === null) return null;
      words.push(`${letter}${kind}`);
      own.address(ip, letter);
    }
    if (port.nodePort !== 0) own.port(port.nodePort);
    const keys = [...own.addresses(), ...(port.nodePort === 0 ? [] : [`port ${port.nodePort}`])];
    for (const key of keys) {
      for (const entry of this.#entries.get(key) ?? []) words.push(own.entry(entry));
    }
    for (const { table, chain } of own.chains()) {
      for (const { text } of table.chains.get(chain)?.rules ?? []) {
        // Clients that are remembered are not the same for two Services.
        if (/@\S*\//.test(text)) return null;
        words.push(own.rule(table, text));
      }
    }
    return words.join("\n");
  }

  /** Which networks that rules name it is in; null: some rule names the address itself. */
  #classOf(ip: string): string | null {
    const known = this.#classes.get(ip);
    if (known !== undefined) return known;
    const parsed = parseIp(ip);
    const { addresses, networks } = this.#named ?? { addresses: new Set(), networks: [] };
    const isSpecial = parsed === null || isLoopback(parsed) || addresses.has(ip) ||
      this.#nodeAddresses.has(ip);
    const kind = isSpecial || parsed === null
      ? null
      : networks.map((network) => cidrContains(network, parsed) ? "1" : "0").join("");
    this.#classes.set(ip, kind);
    return kind;
  }
}

/** The words that stand for what is one Service's own, in the order in which they come up. */
class Names {
  readonly #words = new Map<string, string>();
  readonly #chains: { readonly table: NftTable; readonly chain: string }[] = [];
  #port = 0;

  address(ip: string, letter: "D" | "E"): void {
    if (!this.#words.has(ip)) this.#words.set(ip, `${letter}${this.#words.size}`);
  }

  port(nodePort: number): void {
    this.#port = nodePort;
  }

  addresses(): readonly string[] {
    return [...this.#words.keys()];
  }

  /** Those that were come upon; grows while it is gone through. */
  chains(): readonly { readonly table: NftTable; readonly chain: string }[] {
    return this.#chains;
  }

  entry({ table, place, parts, value }: Entry): string {
    let text = place;
    for (const part of parts) text += ` ${this.#words.get(part) ?? this.#portWord(part)}`;
    return value === "" ? text : `${text} : ${this.#value(table, value)}`;
  }

  /** Most are an address and a port. */
  #value(table: NftTable, value: string): string {
    const blank = value.indexOf(" ");
    const known = this.#words.get(blank < 0 ? value : value.slice(0, blank));
    if (known !== undefined) return blank < 0 ? known : known + value.slice(blank);
    return this.rule(table, value);
  }

  rule(table: NftTable, text: string): string {
    return text.replaceAll(COMMENT, "")
      .replaceAll(
        /\b(goto|jump) ([^\s,}]+)/g,
        (_, verb: string, chain: string) => `${verb} ${this.#chainWord(table, chain)}`,
      )
      .replaceAll(ADDRESS, (word) => this.#words.get(word) ?? word)
      .replaceAll(CHOICES, (_, start: string, list: string, end: string) => {
        const values = list.split(",").map((one) => one.trim().replace(/^\d+ : /, ""));
        return `${start}${values.sort().join(", ")}${end}`;
      });
  }

  #portWord(part: string): string {
    return this.#port !== 0 && part === String(this.#port) ? "P" : part;
  }

  /** Shared chains have no slash in their names. */
  #chainWord(table: NftTable, chain: string): string {
    if (!chain.includes("/")) return chain;
    const key = `${tableWord(table)} ${chain}`;
    let word = this.#words.get(key);
    if (word === undefined) {
      word = `C${this.#chains.length}`;
      this.#words.set(key, word);
      this.#chains.push({ table, chain });
    }
    return word;
  }
}

function tableWord({ family, name, label }: NftTable): string {
  return label ?? `${family} ${name}`;
}

function entriesOf(sides: readonly HeldRules[]): ReadonlyMap<string, readonly Entry[]> {
  const entries = new Map<string, Entry[]>();
  for (const table of sides.flatMap(({ nftables }) => nftables)) {
    for (const { name: container, keys, elements, hasRanges } of table.containers.values()) {
      // Ranges are among the networks that rules name.
      if (hasRanges === true) continue;
      const at = keys.flatMap((type, index) => type === "ipv4_addr" || type === "ipv6_addr" ? [index] : []);
      const place = `${tableWord(table)} ${container}`;
      const portAt = keys.indexOf("inet_service");
      for (const [key, value] of elements) {
        const parts = key.split(" . ");
        const names = at.length > 0
          ? at.map((index) => parts[index] ?? "")
          : portAt >= 0
          ? [`port ${parts[portAt]}`]
          : [];
        const entry: Entry = { table, place, parts, value };
        for (const name of names.length < 2 ? names : new Set(names)) {
          const known = entries.get(name);
          if (known === undefined) entries.set(name, [entry]);
          else known.push(entry);
        }
      }
    }
  }
  return entries;
}

function namedAddresses(
  sides: readonly HeldRules[],
): { readonly addresses: ReadonlySet<string>; readonly networks: readonly Cidr[] } | null {
  const texts: string[] = [];
  for (const { iptables, nftables, sets, ipvs } of sides) {
    if (sets.size > 0 || (ipvs !== null && ipvs.servers.virtualServers.size > 0)) return null;
    for (const { tables } of iptables) {
      for (const chains of tables.values()) {
        for (const { rules } of chains.values()) {
          texts.push(...rules.slice(0, MAX_RULES + 1));
          if (texts.length > MAX_RULES) return null;
        }
      }
    }
    for (const { chains, containers } of nftables) {
      for (const { name, rules } of chains.values()) {
        if (!name.includes("/")) { for (const { text } of rules) texts.push(text); }
      }
      for (const { hasRanges, elements } of containers.values()) {
        if (hasRanges === true) { for (const key of elements.keys()) texts.push(key); }
      }
      if (texts.length > MAX_RULES) return null;
    }
  }
  const addresses = new Set<string>();
  const networks = new Map<string, Cidr>();
  for (const text of texts) {
    const plain = text.replaceAll(COMMENT, "");
    // What looks at ranges of addresses, or at single ports, would have to be understood.
    if (LITERAL_PORT.test(plain) || /[0-9a-f]-[0-9a-f:]+[.:]|--\w*range|-m set\b/.test(plain)) return null;
    for (const [word, length] of plain.matchAll(ADDRESS)) {
      const cidr = length === undefined ? null : parseCidr(word);
      const ip = parseIp(word.replace(/\/\d+$/, ""));
      if (cidr !== null && !/\/(?:32|128)$/.test(word)) networks.set(word, cidr);
      else if (ip !== null) addresses.add(ip.text);
    }
  }
  return networks.size > MAX_NETWORKS ? null : { addresses, networks: [...networks.values()] };
}
