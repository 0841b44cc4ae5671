/**
 * IP addresses and networks: reading what Kubernetes objects and configurations hold, writing the one canonical text.
 *
 * @module
 */
import type { IpFamily } from "./objects.ts";

/** An address. Two addresses are the same if and only if their texts are. */
export interface Ip {
  /** IPv4 or IPv6. */
  readonly family: IpFamily;
  /** Canonical: no leading zeros; IPv6 in lower case with the first longest run of zero groups shortened (RFC 5952). */
  readonly text: string;
  /** 4 or 16 bytes in network order. */
  readonly bytes: readonly number[];
}

/** A network: the address bits after the prefix are zero. */
export interface Cidr {
  /** The family of its addresses. */
  readonly family: IpFamily;
  /** Canonical network address, `/`, prefix length. */
  readonly text: string;
  /** How many leading bits all of its addresses share. */
  readonly prefixLength: number;
  /** 4 or 16 bytes of the network address. */
  readonly bytes: readonly number[];
}

const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;

/**
 * Yields the address that `text` writes, or null if it is none.
 *
 * Reads what the API server has stored over the years: leading zeros in IPv4 octets are allowed and decimal (`010` is ten),
 * and an IPv4-mapped IPv6 address is the IPv4 address. White space, zone ids and ports are refused.
 */
export function parseIp(text: string): Ip | null {
  if (!text.includes(":")) return parseIpv4(text);
  const groups = readHexGroups(text) ?? readDottedTail(text);
  if (groups === null) return null;
  if (isIpv4Mapped(groups)) {
    const high = groups[6]!;
    const low = groups[7]!;
    const bytes = [high >> 8, high & 0xff, low >> 8, low & 0xff];
    return { family: "IPv4", text: bytes.join("."), bytes };
  }
  return { family: "IPv6", text: formatGroups(groups), bytes: bytesOfGroups(groups) };
}

/**
 * Yields the network that `text` (`address/length`) writes, host bits cleared, or null if it is none.
 *
 * Addresses are read as by {@link parseIp}, except that an IPv4-mapped one is refused: its length could be meant for
 * either family.
 */
export function parseCidr(text: string): Cidr | null {
  const match = /^([^/]*)\/([0-9]{1,3})$/.exec(text);
  if (match === null) return null;
  const ip = parseIp(match[1]!);
  if (ip === null) return null;
  if (ip.family === "IPv4" && text.includes(":")) return null;
  const prefixLength = Number(match[2]);
  if (prefixLength > ip.bytes.length * 8) return null;
  const bytes = ip.bytes.map((byte, index) => byte & byteMask(prefixLength - index * 8));
  return { family: ip.family, text: `${textOfBytes(bytes)}/${prefixLength}`, prefixLength, bytes };
}

/** True if `ip` is of the network's family and lies in it. */
export function cidrContains(cidr: Cidr, ip: Ip): boolean {
  if (cidr.family !== ip.family) return false;
  for (let index = 0; index * 8 < cidr.prefixLength; index++) {
    const mask = byteMask(cidr.prefixLength - index * 8);
    if ((ip.bytes[index]! & mask) !== cidr.bytes[index]) return false;
  }
  return true;
}

/** The network that holds just `ip`. */
export function hostCidr(ip: Ip): Cidr {
  const prefixLength = ip.bytes.length * 8;
  return { family: ip.family, text: `${ip.text}/${prefixLength}`, prefixLength, bytes: ip.bytes };
}

/** The network of one address as text: `10.0.0.1` → `10.0.0.1/32`, `fd00::1` → `fd00::1/128`. */
export function hostCidrText(address: string): string {
  return `${address}/${address.includes(":") ? 128 : 32}`;
}

/** True for 127.0.0.0/8 and ::1. */
export function isLoopback(ip: Ip): boolean {
  return ip.family === "IPv4" ? ip.bytes[0] === 127 : ip.text === "::1";
}

/** True for 0.0.0.0 and ::. */
export function isUnspecified(ip: Ip): boolean {
  return ip.text === "0.0.0.0" || ip.text === "::";
}

/** Address to reach a local server that listens on `host`: for a wildcard, the loopback address of its family. */
export function localHost(host: string): string {
  const ip = parseIp(host);
  if (ip === null || !isUnspecified(ip)) return host;
  return ip.family === "IPv4" ? "127.0.0.1" : "::1";
}

/**
 * Kind of an address that names no single host beyond this machine or this link, e.g. `a loopback address`; null
 * for all others.
 */
export function specialUse(ip: Ip): string | null {
  const [first = 0, second = 0] = ip.bytes;
  if (isUnspecified(ip)) return "the unspecified address";
  if (isLoopback(ip)) return "a loopback address";
  if (ip.family === "IPv4") {
    if (first === 169 && second === 254) return "a link-local address";
    if (first >= 224 && first < 240) return "a multicast address";
    return ip.text === "255.255.255.255" ? "the broadcast address" : null;
  }
  if (first === 0xfe && (second & 0xc0) === 0x80) return "a link-local address";
  return first === 0xff ? "a multicast address" : null;
}

/** `ip:port`, or `[ip]:port` if `ip` is an IPv6 address. */
export function joinHostPort(ip: string, port: number): string {
  return ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
}

/**
 * Takes `IP:port` apart.
 *
 * @throws {TypeError} if it is something else
 */
export function splitHostPort(address: string): [host: string, port: number] {
  const match = /^(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})$/.exec(address);
  const host = parseIp(match?.[1] ?? match?.[2] ?? "");
  const port = Number(match?.[3]);
  if (host === null || !(port <= 65_535)) throw new TypeError(`"${address}" is not IP:port`);
  return [host.text, port];
}

function parseIpv4(text: string): Ip | null {
  // One pass over character codes: a node parses an address per endpoint, 100,000 and more at start.
  const bytes: number[] = [];
  let octet = 0;
  let digits = 0;
  let canonical = true;
  for (let index = 0; index <= text.length; index++) {
    const code = index < text.length ? text.charCodeAt(index) : DOT;
    if (code >= ZERO && code <= NINE) {
      if (digits === 1 && octet === 0) canonical = false;
      octet = octet * 10 + code - ZERO;
      if (octet > 255) return null;
      digits++;
    } else if (code === DOT && digits > 0) {
      bytes.push(octet);
      octet = 0;
      digits = 0;
    } else {
      return null;
    }
  }
  if (bytes.length !== 4) return null;
  return { family: "IPv4", text: canonical ? text : bytes.join("."), bytes };
}

/** Eight groups of an IPv6 text made of hexadecimal groups and at most one `::`; null for anything else. */
function readHexGroups(text: string): number[] | null {
  const [before = "", after, ...more] = text.split("::");
  const [head, tail] = [hexGroups(before), hexGroups(after ?? "")];
  if (more.length > 0 || head === null || tail === null) return null;
  const missing = 8 - head.length - tail.length;
  if (after === undefined ? missing !== 0 : missing < 1) return null;
  return [...head, ...new Array<number>(missing).fill(0), ...tail];
}

/** Groups of hexadecimal digits between colons; null if one is invalid. */
function hexGroups(text: string): number[] | null {
  if (text === "") return [];
  const groups = text.split(":");
  return groups.every((group) => /^[0-9a-fA-F]{1,4}$/.test(group))
    ? groups.map((group) => Number.parseInt(group, 16))
    : null;
}

/** Groups of an IPv6 address in the rarer spelling, with a dotted IPv4 tail. */
function readDottedTail(text: string): number[] | null {
  const tailStart = text.lastIndexOf(":") + 1;
  const [a, b, c, d] = parseIpv4(text.slice(tailStart))?.bytes ?? [];
  if (a === undefined || b === undefined || c === undefined || d === undefined) return null;
  const tail = [(a << 8) | b, (c << 8) | d].map((group) => group.toString(16)).join(":");
  return readHexGroups(text.slice(0, tailStart) + tail);
}

function isIpv4Mapped(groups: readonly number[]): boolean {
  return groups[5] === 0xffff && groups[0] === 0 && groups[1] === 0 && groups[2] === 0 && groups[3] === 0 &&
    groups[4] === 0;
}

function bytesOfGroups(groups: readonly number[]): number[] {
  const bytes: number[] = [];
  for (const group of groups) bytes.push(group >> 8, group & 0xff);
  return bytes;
}

function textOfBytes(bytes: readonly number[]): string {
  if (bytes.length === 4) return bytes.join(".");
  const groups: number[] = [];
  for (let index = 0; index < 16; index += 2) {
    groups.push((bytes[index]! << 8) | bytes[index + 1]!);
  }
  return formatGroups(groups);
}

function formatGroups(groups: readonly number[]): string {
  let gapStart = -1;
  let gapLength = 1;
  for (let index = 0; index < 8; index++) {
    let end = index;
    while (groups[end] === 0) end++;
    if (end - index > gapLength) {
      gapStart = index;
      gapLength = end - index;
    }
    index = end;
  }
  let text = "";
  for (let index = 0; index < 8; index++) {
    if (index === gapStart) {
      text += "::";
      index += gapLength - 1;
      continue;
    }
    if (text !== "" && !text.endsWith(":")) text += ":";
    text += groups[index]!.toString(16);
  }
  return text;
}

/** Mask of one byte of which the first `bits` (any number; clamped to 0..8) belong to the prefix. */
function byteMask(bits: number): number {
  return (0xff00 >> Math.min(8, Math.max(0, bits))) & 0xff;
}

/** Order of two addresses, by their bytes: less than 0 if `left` comes first. IPv4 comes before IPv6. */
export function compareIps(left: Ip, right: Ip): number {
  if (left.bytes.length !== right.bytes.length) return left.bytes.length - right.bytes.length;
  const at = left.bytes.findIndex((byte, index) => byte !== right.bytes[index]);
  return at < 0 ? 0 : (left.bytes[at] ?? 0) - (right.bytes[at] ?? 0);
}
