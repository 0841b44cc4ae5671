/**
 * Sets of ipset, and their text: lines of `ipset restore` and `ipset save`.
 *
 * @module
 */
import { parseCidr } from "../model/ip.ts";
import type { IpFamily, Protocol } from "../model/objects.ts";

/** The types of sets that kproxy uses. */
export const SET_TYPES = [
  "hash:ip",
  "hash:ip,port",
  "hash:ip,port,ip",
  "hash:ip,port,net",
  "bitmap:port",
] as const;

/** One of {@linkcode SET_TYPES}. */
export type SetType = typeof SET_TYPES[number];

/** ipset's limit (IPSET_MAXNAMELEN without its final zero). */
export const MAX_SET_NAME_LENGTH = 31;

/** Parameters of `ipset create`. */
export interface SetDefinition {
  /** At most 31 characters. */
  readonly name: string;
  /** Type of the set, and so the parts of its entries. */
  readonly type: SetType;
  /** Family of its addresses; without meaning for `bitmap:port`. */
  readonly family: IpFamily;
  /** Maximum number of entries; `bitmap:port` takes every port. */
  readonly maxElements: number;
}

/** An entry as `ipset save` prints it: IPv6 without brackets, networks of one address without their length. */
export type SetEntry = string;

/** The kernel's default of `maxelem`. */
export const DEFAULT_MAX_ELEMENTS = 65_536;

/** A set as the kernel holds it. */
export interface SavedSet {
  /** Name of the set. */
  readonly name: string;
  /** Null for a set that kproxy cannot have made. */
  readonly definition: SetDefinition | null;
  /** All entries, unordered. */
  readonly entries: ReadonlySet<SetEntry>;
}

/** Entry of `hash:ip,port`. */
export function ipPortEntry(ip: string, protocol: Protocol, port: number): SetEntry {
  return `${ip},${protocol.toLowerCase()}:${port}`;
}

/** Entry of `hash:ip,port,ip`. */
export function ipPortIpEntry(ip: string, protocol: Protocol, port: number, secondIp: string): SetEntry {
  return `${ipPortEntry(ip, protocol, port)},${secondIp}`;
}

/**
 * Entry of `hash:ip,port,net`; null for a network of all addresses, which ipset refuses.
 *
 * @throws {SyntaxError} if `cidr` is no network
 */
export function ipPortNetEntry(
  ip: string,
  protocol: Protocol,
  port: number,
  cidr: string,
): SetEntry | null {
  const net = parseCidr(cidr);
  if (net === null) throw new SyntaxError(`"${cidr}" is not a network`);
  if (net.prefixLength === 0) return null;
  const isOneAddress = net.prefixLength === net.bytes.length * 8;
  const text = isOneAddress ? net.text.slice(0, net.text.indexOf("/")) : net.text;
  return `${ipPortEntry(ip, protocol, port)},${text}`;
}

/** Entry of `bitmap:port`. */
export function portEntry(port: number): SetEntry {
  return String(port);
}

/** The line that creates a set. With `-exist` the same set is no error; one with another `maxelem` is. */
export function createSetLine({ name, type, family, maxElements }: SetDefinition): string {
  if (type === "bitmap:port") return `create ${name} ${type} range 0-65535`;
  const inet = family === "IPv4" ? "inet" : "inet6";
  return `create ${name} ${type} family ${inet} hashsize 1024 maxelem ${maxElements}`;
}

export function addEntryLine(set: string, entry: SetEntry): string {
  return `add ${set} ${entry}`;
}

export function deleteEntryLine(set: string, entry: SetEntry): string {
  return `del ${set} ${entry}`;
}

export function destroySetLine(set: string): string {
  return `destroy ${set}`;
}

/** The line that swaps the contents and sizes of two sets of one type at once, under the rules that use them. */
export function swapSetsLine(set: string, other: string): string {
  return `swap ${set} ${other}`;
}

/**
 * Reads the text of `ipset save`; by name. Sets that are not wanted are left out.
 *
 * @throws {SyntaxError} if a line is not ipset's
 */
export function parseSets(
  text: string,
  isWanted: (name: string) => boolean = () => true,
): ReadonlyMap<string, SavedSet> {
  const sets = new Map<string, { name: string; definition: SetDefinition | null; entries: Set<SetEntry> }>();
  for (const line of text.split("\n")) {
    const [command = "", name = "", third = "", ...options] = line.split(" ");
    // Sets of other programs may have entries of any shape.
    if (line === "" || !isWanted(name)) continue;
    if (command === "create" && third !== "") {
      sets.set(name, { name, definition: readDefinition(name, third, options), entries: new Set() });
      continue;
    }
    const set = sets.get(name);
    if (command !== "add" || set === undefined) throw new SyntaxError(`"${line}" is no line of ipset save`);
    set.entries.add(normalEntry(third));
  }
  return sets;
}

/**
 * Reads the text of `ipset list -terse`: number of entries by set; null where it is not printed, as by an old ipset.
 */
export function parseSetSizes(text: string): ReadonlyMap<string, number | null> {
  const sizes = new Map<string, number | null>();
  let name = "";
  for (const line of text.split("\n")) {
    const [, label, value = ""] = /^(Name|Number of entries): (.+)$/.exec(line) ?? [];
    if (label === "Name") sizes.set(name = value, null);
    else if (label !== undefined) sizes.set(name, /^\d+$/.test(value) ? Number(value) : null);
  }
  return sizes;
}

/** An entry as newer versions of ipset print it: without the prefix length of a network of one address. */
export function normalEntry(entry: string): SetEntry {
  return entry.replace(isIpv6Entry(entry) ? /\/128$/ : /\/32$/, "");
}

function isIpv6Entry(entry: string): boolean {
  const comma = entry.indexOf(",");
  return (comma < 0 ? entry : entry.slice(0, comma)).includes(":");
}

/** Options of `create` that say how the kernel stores a set: they do not distinguish sets. */
const STORAGE_OPTIONS = new Set(["hashsize", "bucketsize", "initval"]);

function readDefinition(
  name: string,
  typeText: string,
  options: readonly string[],
): SetDefinition | null {
  const type = SET_TYPES.find((known) => known === typeText);
  const found = new Map<string, string>();
  for (let i = 0; i < options.length; i += 2) {
    const option = options[i] ?? "";
    if (!STORAGE_OPTIONS.has(option)) found.set(option, options[i + 1] ?? "");
  }
  if (type === undefined) return null;
  if (type === "bitmap:port") {
    if (found.size !== 1 || found.get("range") !== "0-65535") return null;
    return { name, type, family: "IPv4", maxElements: 65_536 };
  }
  const inet = found.get("family");
  const maxElements = Number(found.get("maxelem"));
  if (found.size !== 2 || (inet !== "inet" && inet !== "inet6") || !(maxElements > 0)) return null;
  return { name, type, family: inet === "inet" ? "IPv4" : "IPv6", maxElements };
}
