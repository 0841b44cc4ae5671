/**
 * Live rules of one ServicePort: rules, elements and virtual servers, with their counters.
 *
 * @module
 */
import { DISPATCH_CHAINS } from "../../backend/iptables/plan/chains.ts";
import { CHAINS } from "../../backend/userspace/plan/chains.ts";
import type { ServicePort } from "../../model/state.ts";
import type { Traffic } from "../../model/service_traffic.ts";
import { joinHostPort } from "../../model/ip.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import { virtualServerKey } from "../../netfilter/ipvs.ts";
import type { ListedContainer } from "../../netfilter/nft_listing.ts";
import { UnreadElements } from "../live/unread_elements.ts";
import { proxyOfTable } from "../live/live.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { addressesOf } from "./service_match.ts";

export interface HeldPart {
  /** Place, e.g. `iptables nat KUBE-SERVICES`, `nftables ip kproxy service-ips`, `IPVS`, `ipset KUBE-CLUSTER-IP`. */
  readonly place: string;
  readonly text: string;
  /** Null: it has no counter. */
  readonly counted: Traffic | null;
}

type ChainPlace = readonly [table: Table, chain: string];

/** iptables chains with the dispatch rules of Services. */
const SHARED_CHAINS = [...placesOf(DISPATCH_CHAINS), ...placesOf(CHAINS)];
const OWN_CHAIN = /^KUBE-(?:SVC|SVL|EXT|FW|SEP|XLB)-/;

export interface HeldQuestion {
  readonly nodeAddresses: readonly string[];
  /** Number of endpoints that it should have. */
  readonly endpoints: number;
}

/** All rules and elements of a port, those that dispatch to it first. */
export function heldParts(
  held: RulesetSnapshot,
  port: ServicePort,
  { nodeAddresses, endpoints }: HeldQuestion,
): readonly HeldPart[] {
  return [
    ...iptablesParts(held, port),
    ...nftablesParts(held, port, endpoints),
    ...ipvsParts(held, port, nodeAddresses),
    ...portalParts(held, port),
  ];
}

/** Counted packets of new connections to the port; null: nothing counts them. */
export function countedTraffic(parts: readonly HeldPart[]): Traffic | null {
  const counted = parts.flatMap(({ place, counted }) =>
    counted !== null &&
      (place.includes("KUBE-SERVICES") || place.includes("KUBE-NODEPORTS") || place.includes("traffic"))
      ? [counted]
      : []
  );
  if (counted.length === 0) return null;
  return {
    packets: counted.reduce((sum, { packets }) => sum + packets, 0),
    bytes: counted.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

function countersOf(chain: object): readonly (Traffic | null)[] {
  return "counters" in chain && Array.isArray(chain.counters) ? chain.counters : [];
}

function iptablesParts({ iptables }: RulesetSnapshot, port: ServicePort): readonly HeldPart[] {
  const parts: HeldPart[] = [];
  const names = commentsOf(port);
  for (const { tables } of iptables) {
    const chains = new Set<string>();
    const take = ([table, chain]: ChainPlace, isTaken: (rule: string) => boolean): void => {
      const saved = tables.get(table)?.get(chain);
      for (const [index, text] of saved?.rules.entries() ?? []) {
        if (!isTaken(text)) continue;
        const counted = countersOf(saved ?? {})[index] ?? null;
        parts.push({ place: `iptables ${table} ${chain}`, text, counted });
        if (table === "nat") addTarget(text, chains);
      }
    };
    for (const place of SHARED_CHAINS) take(place, (rule) => names.some((name) => rule.includes(name)));
    // The loop covers targets that it adds: chains jump to further chains.
    for (const chain of chains) take(["nat", chain], () => true);
  }
  return parts;
}

function placesOf(chains: Readonly<Record<Table, readonly string[]>>): readonly ChainPlace[] {
  return (["nat", "filter"] as const).flatMap((table) =>
    chains[table].map((chain): ChainPlace => [table, chain])
  );
}

function portalParts({ portals }: RulesetSnapshot, { text, protocol }: ServicePort): readonly HeldPart[] {
  return [...portals ?? []].flatMap(([key, portal]): HeldPart[] => {
    if (typeof portal === "string" || portal.servicePort !== text) return [];
    const [name = "", number = ""] = key.split(" ");
    if (name !== protocol.toLowerCase()) return [];
    const ends = portal.endpoints.map(({ ip, port }) => joinHostPort(ip, port)).join(", ") || "no endpoint";
    return [{ place: "kproxy", text: `${name} port ${number} -> ${ends} (${portal.policy})`, counted: null }];
  });
}

/** Beginnings of comments that name the port: with blanks they are quoted, and a port's name may go on. */
function commentsOf({ text }: ServicePort): readonly string[] {
  return [`--comment "${text} `, `--comment "${text}"`, `--comment ${text} `];
}

function addTarget(rule: string, chains: Set<string>): void {
  const target = / -[jg] (\S+)/.exec(` ${rule}`)?.[1];
  if (target !== undefined && OWN_CHAIN.test(target)) chains.add(target);
}

/** Keys of destinations: `ip . tcp . 80`, `tcp . 30080`; and key prefixes of their endpoints: `ip . 80 . `, `30080 . `. */
function keysOf(
  port: ServicePort,
): { readonly whole: ReadonlySet<string>; readonly prefixes: readonly string[] } {
  const protocol = port.protocol.toLowerCase();
  const ips = addressesOf(port);
  const whole = new Set(ips.map((ip) => `${ip} . ${protocol} . ${port.port}`));
  const prefixes = ips.map((ip) => `${ip} . ${port.port} . `);
  if (port.nodePort !== 0) {
    whole.add(`${protocol} . ${port.nodePort}`);
    prefixes.push(`${port.nodePort} . `);
  }
  return { whole, prefixes };
}

function partCount({ type }: ListedContainer): number {
  return (type.split(" : ")[0] ?? "").split(" . ").length;
}

/** Keys of the container's type: with as many parts, and the protocol before the port. */
function wholeKeys(container: ListedContainer, whole: ReadonlySet<string>): readonly string[] {
  if (!/inet_proto \. inet_service(?: :|$)/.test(container.type)) return [];
  return [...whole].filter((key) => key.split(" . ").length === partCount(container));
}

/** Keys of endpoint elements: all with a prefix or, in a map whose elements are read one by one, those of the possible slots. */
function* endpointKeys(
  container: ListedContainer,
  prefixes: readonly string[],
  endpoints: number,
): Generator<string> {
  const { elements } = container;
  if (!(elements instanceof UnreadElements)) {
    for (const key of elements.keys()) if (prefixes.some((prefix) => key.startsWith(prefix))) yield key;
    return;
  }
  for (const prefix of prefixes) {
    // Keys of node ports have no address part.
    if (prefix.split(" . ").length !== partCount(container)) continue;
    for (let slot = 0;; slot++) {
      const key = `${prefix}${slot}`;
      if (elements.has(key)) yield key;
      else if (slot >= endpoints) break;
    }
  }
}

function nftablesParts(
  { nftables }: RulesetSnapshot,
  port: ServicePort,
  endpoints: number,
): readonly HeldPart[] {
  const { whole, prefixes } = keysOf(port);
  const protocol = port.protocol.toLowerCase();
  const parts: HeldPart[] = [];
  for (const { name: table, chains, containers } of nftables) {
    if (proxyOfTable(table) === null) continue;
    const called = new Set<string>();
    const take = (name: string, container: ListedContainer, key: string, value: string): void => {
      const counted = container.counters.get(key) ?? null;
      const text = value === "" ? key : `${key} : ${value}`;
      parts.push({ place: `nftables ${table} ${name}`, text, counted });
      const chain = /^(?:goto|jump) (\S+)$/.exec(value)?.[1];
      if (chain !== undefined) called.add(chain);
    };
    for (const [name, container] of containers) {
      for (const key of wholeKeys(container, whole)) {
        const value = container.elements.get(key);
        if (value !== undefined) take(name, container, key, value);
      }
      if (!name.endsWith(`endpoints-${protocol}`)) continue;
      for (const key of endpointKeys(container, prefixes, endpoints)) {
        take(name, container, key, container.elements.get(key) ?? "");
      }
    }
    for (const chain of called) {
      for (const text of chains.get(chain)?.rules ?? []) {
        parts.push({ place: `nftables ${table} ${chain}`, text, counted: null });
        const target = /(?:goto|jump) ((?:service|external|firewall|endpoint)-[^\s,}]+)/g;
        for (const [, next = ""] of text.matchAll(target)) called.add(next);
      }
    }
  }
  return parts;
}

function ipvsParts(
  { ipvs, sets }: RulesetSnapshot,
  port: ServicePort,
  nodeAddresses: readonly string[],
): readonly HeldPart[] {
  if (ipvs === null) return [];
  const parts: HeldPart[] = [];
  const destinations = addressesOf(port).map((address) => ({
    address,
    port: port.port,
    protocol: port.protocol,
  }));
  if (port.nodePort !== 0) {
    for (const address of nodeAddresses) {
      destinations.push({ address, port: port.nodePort, protocol: port.protocol });
    }
  }
  for (const name of destinations) {
    const key = virtualServerKey(name);
    const server = ipvs.servers.virtualServers.get(key);
    if (server === undefined) continue;
    const reals = [...server.realServers.values()]
      .map(({ address, port, weight }) => `${joinHostPort(address, port)} weight ${weight}`);
    const { scheduler } = server.server;
    parts.push({
      place: "IPVS",
      text: `${key} ${scheduler} -> ${reals.join(", ") || "no real server"}`,
      counted: null,
    });
    const entry = `${name.address},${name.protocol.toLowerCase()}:${name.port}`;
    for (const set of sets.values()) {
      if (set.entries.has(entry)) parts.push({ place: `ipset ${set.name}`, text: entry, counted: null });
    }
  }
  return parts;
}

/** True if its cluster IP is served. `iptablesTexts` is by {@linkcode heldPortTexts}, read once for all ports. */
export function isHeld(
  held: RulesetSnapshot,
  port: ServicePort,
  iptablesTexts: ReadonlySet<string>,
): boolean {
  if (iptablesTexts.has(`${port.text} ${port.protocol}`)) return true;
  const { clusterIP: address, protocol, port: number } = port;
  const key = `${address} . ${protocol.toLowerCase()} . ${number}`;
  const inTable = held.nftables.some(({ containers }) =>
    containers.get("service-ips")?.elements.has(key) === true ||
    containers.get("no-endpoint-services")?.elements.has(key) === true
  );
  return inTable ||
    held.ipvs?.servers.virtualServers.has(virtualServerKey({ address, protocol, port: number })) === true;
}

const COMMENT = /--comment "?(\S+\/[^\s"]+)/;

/** `ns/name:port PROTOCOL` of each port that rules of KUBE-SERVICES, or of userspace mode, name. */
export function heldPortTexts({ iptables }: RulesetSnapshot): ReadonlySet<string> {
  const texts = new Set<string>();
  for (const { tables } of iptables) {
    const leading = [["nat", "KUBE-SERVICES"], ["filter", "KUBE-SERVICES"], [
      "nat",
      "KUBE-PORTALS-CONTAINER",
    ]];
    for (const [table = "", chain = ""] of leading) {
      for (const rule of tables.get(table)?.get(chain)?.rules ?? []) {
        const text = COMMENT.exec(rule)?.[1];
        const protocol = / -p (\S+)/.exec(` ${rule}`)?.[1];
        if (text !== undefined && protocol !== undefined) texts.add(`${text} ${protocol.toUpperCase()}`);
      }
    }
  }
  return texts;
}
