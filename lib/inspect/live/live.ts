/**
 * Live rules of one family: which service proxies' rules are in force, by their chains and tables, and what could not be read. They are
 * read from texts that the tools have printed: `iptables-save`, `ip6tables-save`, `nft list ruleset`, `ipvsadm -Sn`, `ipset save`, in any
 * number and order. The tool is found by the text.
 *
 * @module
 */
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import { parseSets, type SavedSet } from "../../netfilter/ipset.ts";
import { leadToServiceChains } from "../../netfilter/iptables_jumps.ts";
import { type IptablesListing, parseIptablesListing } from "../../netfilter/iptables_save.ts";
import { type IpvsTable, parseIpvsTable } from "../../netfilter/ipvs.ts";
import {
  IPTABLES_TABLES,
  type ListedTable,
  type ListingProblem,
  type NftListing,
  parseNftListing,
  tablesOfIptables,
} from "../../netfilter/nft_listing.ts";
import { NftTable } from "../../netfilter/nft_ruleset.ts";
import { parseNftScript } from "../../netfilter/nft_script.ts";
import { nftFamily } from "../../netfilter/nft_words.ts";
import type { IptablesSnapshot, IpvsSnapshot, RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import type { RulesMode } from "../desired/desired.ts";

export interface LiveProblem {
  /** Program (`nft list ruleset`) or file, then the place in its text, e.g. `rules.txt: table nat`. */
  readonly place: string;
  readonly message: string;
}

/** Each problem once: one that concerns both families is listed for each. */
export function uniqueProblems(problems: readonly LiveProblem[]): readonly LiveProblem[] {
  return [...new Map(problems.map((one) => [`${one.place}: ${one.message}`, one])).values()];
}

export interface FoundProxy {
  readonly mode: RulesMode;
  /** `kube-proxy`: its names of chains and tables, which kproxy shares except for its own nftables table. */
  readonly layout: "kproxy" | "kube-proxy";
  /** Chain or table that shows it, e.g. `table ip kproxy`. */
  readonly sign: string;
  /** False: no base chain jumps to its rules. */
  readonly isHooked: boolean;
}

export interface LiveRules extends RulesetSnapshot {
  /** Source of the rules, e.g. `the kernel`, `files a.txt, b.txt`. */
  readonly from: string;
  /** Service proxies with rules, in the order in which packets pass them; none: no rules of any. */
  readonly proxies: readonly FoundProxy[];
  readonly problems: readonly LiveProblem[];
}

export type LiveNode = ReadonlyMap<IpFamily, LiveRules>;

/** Mode in force in any family; null: none. */
export function modeInForce(live: LiveNode): RulesMode | null {
  for (const { proxies } of live.values()) {
    const proxy = proxies.find(({ isHooked }) => isHooked) ?? proxies[0];
    if (proxy !== undefined) return proxy.mode;
  }
  return null;
}

const SERVICES_CHAIN = "KUBE-SERVICES";
/** A chain that only IPVS mode has, whatever Services there are. */
const IPVS_CHAIN = "KUBE-NODE-PORT";
const IPVS_SET = /--match-set KUBE-/;
/** Chains of userspace mode that base chains jump to. */
const PORTAL_CHAINS: readonly string[] = ["KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST"];
const NFT_TABLE = /^\w+ (kproxy|kube-proxy)$/;

/** The service proxy that owns an nft table, e.g. `ip kproxy`; null: none. */
export function proxyOfTable(name: string): FoundProxy["layout"] | null {
  return NFT_TABLE.exec(name)?.[1] as FoundProxy["layout"] | undefined ?? null;
}

/** Service proxies that have rules. kproxy and kube-proxy share the layouts of iptables and IPVS mode. */
export function foundProxies({ iptables, nftables }: RulesetSnapshot): readonly FoundProxy[] {
  const found: FoundProxy[] = [];
  for (const { tables, variant } of iptables) {
    const nat = tables.get("nat");
    const leadsTo = (target: string): boolean =>
      ["PREROUTING", "OUTPUT"].some((chain) =>
        nat?.get(chain)?.rules.some((rule) => rule.includes(`-j ${target}`)) === true
      );
    const where = variant === "" ? "" : ` (iptables ${variant})`;
    const isPortalsHooked = PORTAL_CHAINS.some(leadsTo);
    if (isPortalsHooked || PORTAL_CHAINS.some((chain) => nat?.has(chain))) {
      found.push({
        mode: "userspace",
        layout: "kube-proxy",
        sign: `chain ${PORTAL_CHAINS[0]} of table nat${where}`,
        isHooked: isPortalsHooked,
      });
    }
    const services = nat?.get(SERVICES_CHAIN);
    if (services === undefined) continue;
    const isHooked = leadsTo(SERVICES_CHAIN);
    const isIpvs = !leadToServiceChains(services.rules) &&
      (nat?.has(IPVS_CHAIN) === true || services.rules.some((rule) => IPVS_SET.test(rule)));
    found.push({
      mode: isIpvs ? "ipvs" : "iptables",
      layout: "kube-proxy",
      sign: `chain ${SERVICES_CHAIN} of table nat${where}`,
      isHooked,
    });
  }
  for (const { name, chains } of nftables) {
    const layout = proxyOfTable(name);
    if (layout === null) continue;
    const isHooked = chains.values().some(({ hook }) =>
      hook?.startsWith("type nat hook prerouting ") === true
    );
    found.push({ mode: "nftables", layout, sign: `table ${name}`, isHooked });
  }
  return found;
}

export type LiveTextKind = "iptables" | "nftables" | "ipvsadm" | "ipset";

export interface LiveText {
  /** Name of the file, or command line of the program. */
  readonly name: string;
  readonly text: string;
  /** Family of iptables output. @default {found in the text} */
  readonly family?: IpFamily;
  /** Variant of iptables output. @default {found in the text, or unknown} */
  readonly variant?: IptablesSnapshot["variant"];
  /** Kind of text. @default {found in the text} */
  readonly kind?: LiveTextKind;
}

interface NftText extends LiveText {
  readonly listing: NftListing;
}

/** Facts that the texts do not contain. */
export interface LiveFacts {
  readonly from: string;
  /** Addresses on the proxy's dummy device; null: taken from the virtual servers. */
  readonly bound: readonly string[] | null;
  readonly problems: readonly LiveProblem[];
}

const KINDS: readonly (readonly [LiveTextKind, RegExp])[] = [
  ["iptables", /^\*\w+$/m],
  ["nftables", /^(?:table \w+ \S+ \{|add table )/m],
  ["ipvsadm", /^-A (?:-[tuf]|--(?:tcp|udp|sctp|fwmark)-service) /m],
  ["ipset", /^create \S+ (?:hash|bitmap|list):/m],
];

/** Kind of a text; null: unknown. */
function kindOfText(text: string): LiveTextKind | null {
  return KINDS.find(([, sign]) => sign.test(text))?.[0] ?? null;
}

export function liveOfTexts(texts: readonly LiveText[], facts: LiveFacts): LiveNode {
  const problems: LiveProblem[] = [...facts.problems];
  const sorted = texts.flatMap((one) => {
    const kind = one.kind ?? kindOfText(one.text);
    if (kind !== null) return [{ ...one, kind }];
    // A tool without rules prints nothing, or only comments.
    if (!one.text.split("\n").every((line) => line.trim() === "" || line.startsWith("#"))) {
      problems.push({
        place: one.name,
        message: "it is none of iptables-save, nft list ruleset, ipvsadm -Sn, ipset save",
      });
    }
    return [];
  });
  const sets = new Map(
    sorted.filter(({ kind }) => kind === "ipset").flatMap((one) => [...setsOf(one, problems)]),
  );
  const nft = sorted.filter(({ kind }) => kind === "nftables").map((one): NftText => ({
    ...one,
    listing: /^add table /m.test(one.text) ? parseNftScript(one.text) : parseNftListing(one.text),
  }));
  const ipvs = ipvsOf(sorted.filter(({ kind }) => kind === "ipvsadm"), facts, problems);
  return new Map(FAMILIES.map((family) => {
    const found: LiveProblem[] = [...problems];
    const iptables = sorted.filter((one) => one.kind === "iptables" && familyOf(one) === family)
      .map((one) => iptablesOf(one, found));
    const nftables = nft.flatMap((one) => nftablesOf(one, family, iptables, found));
    const held: RulesetSnapshot = { family, iptables, nftables, sets, ipvs };
    const live: LiveRules = { ...held, from: facts.from, proxies: foundProxies(held), problems: found };
    return [family, live];
  }));
}

function report(name: string, problems: LiveProblem[], found: IptablesListing["problems"]): void {
  for (const { place, message } of found) problems.push({ place: `${name}: ${place}`, message });
}

function iptablesOf({ name, text, variant }: LiveText, problems: LiveProblem[]): IptablesSnapshot {
  const listing = parseIptablesListing(text);
  report(name, problems, listing.problems);
  return { variant: variant ?? variantOf(text), tables: listing.tables };
}

/** By `# Generated by iptables-save v1.8.9 (nf_tables) on …`; old programs, and hand-made texts, do not say. */
function variantOf(text: string): IptablesSnapshot["variant"] {
  const [, variant] = /^# Generated by \S+ v\S+ \((nf_tables|legacy)\)/m.exec(text) ?? [];
  return variant === undefined ? "" : variant === "legacy" ? "legacy" : "nft";
}

/** Family by the first line, an address in the text, or the name of the file. */
function familyOf({ family, name, text }: LiveText): IpFamily {
  if (family !== undefined) return family;
  const [, program] = /^# Generated by (ip6?tables)/m.exec(text) ?? [];
  if (program !== undefined) return program === "ip6tables" ? "IPv6" : "IPv4";
  const [, address] = / (?:-s|-d|--to-destination) (\S+)/.exec(text) ?? [];
  if (address !== undefined) return /:[0-9a-f]*:/.test(address) ? "IPv6" : "IPv4";
  return /ip6|ipv6/i.test(name) ? "IPv6" : "IPv4";
}

/** The tables that packets of the family pass. */
function nftablesOf(
  { name, text, listing }: NftText,
  family: IpFamily,
  iptables: readonly IptablesSnapshot[],
  problems: LiveProblem[],
): readonly ListedTable[] {
  const managed = tablesOfIptables(text);
  const word = nftFamily(family);
  // Tables of iptables-nft are taken from iptables' own output; one that iptables could not print is taken from nft.
  const isRead = (table: string): boolean =>
    iptables.some(({ variant, tables }) => variant !== "legacy" && tables.has(table));
  const isOfFamily = ({ place }: ListingProblem): boolean => {
    const of = /^table (\w+) /.exec(place)?.[1];
    return of === undefined || of === word || of === "inet";
  };
  report(name, problems, listing.problems.filter(isOfFamily));
  return listing.tables.filter((table) => {
    const [of = "", own = ""] = table.name.split(" ");
    if (of === "netdev" || of === "bridge") {
      const message = `what it does to packets of family ${of} is not read`;
      problems.push({ place: `${name}: table ${table.name}`, message });
    }
    if (of !== word && of !== "inet") return false;
    const isOfIptables = managed.has(table.name) || (of === word && IPTABLES_TABLES.has(own));
    if (isOfIptables && isRead(own)) return false;
    report(name, problems, [...new NftTable(table, family).problems()]);
    return true;
  });
}

function setsOf({ name, text }: LiveText, problems: LiveProblem[]): ReadonlyMap<string, SavedSet> {
  return lineByLine(name, text, problems, (lines) => parseSets(lines), new Map<string, SavedSet>());
}

function ipvsOf(texts: readonly LiveText[], facts: LiveFacts, problems: LiveProblem[]): IpvsSnapshot | null {
  if (texts.length === 0) return null;
  const none: IpvsTable = { virtualServers: new Map(), otherLines: [] };
  const tables = texts.map(({ name, text }) => lineByLine(name, text, problems, parseIpvsTable, none));
  const servers: IpvsTable = {
    virtualServers: new Map(tables.flatMap(({ virtualServers }) => [...virtualServers])),
    otherLines: tables.flatMap(({ otherLines }) => otherLines),
  };
  const addresses = [...servers.virtualServers.values()].map(({ server }) => server.address);
  return { servers, bound: facts.bound ?? [...new Set(addresses)] };
}

/** Reads a text; lines that the reader refuses are left out, and are among the problems. */
function lineByLine<T>(
  name: string,
  text: string,
  problems: LiveProblem[],
  read: (text: string) => T,
  none: T,
): T {
  let lines = text.split("\n");
  for (let refused = 0; refused <= MAX_REFUSED; refused++) {
    try {
      return read(lines.join("\n"));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      problems.push({ place: name, message: error.message });
      const [, line] = /^"(.*?)" (?:is no line|names no)/.exec(error.message) ?? [];
      const rest = lines.filter((one) => one !== line);
      if (line === undefined || rest.length === lines.length) return none;
      lines = rest;
    }
  }
  problems.push({ place: name, message: "more lines like these; nothing of it is used" });
  return none;
}

/** Limit of refused lines: each costs another reading of the rest. */
const MAX_REFUSED = 20;
