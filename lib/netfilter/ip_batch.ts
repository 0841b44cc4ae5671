/**
 * Text of the `ip` program: lines for `ip -batch -`, and what `ip -json` prints of devices and addresses.
 *
 * @module
 */
import { hostCidrText, parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import { isRecord } from "../text/record.ts";

/** An address of a network device. */
export interface DeviceAddress {
  readonly device: string;
  readonly family: IpFamily;
  /** Canonical text of the address. */
  readonly address: string;
  readonly prefixLength: number;
  /** Scope: `global`, `link`, `host`, … */
  readonly scope: string;
}

/** The line that makes a dummy device. */
export function addDummyLine(device: string): string {
  return `link add ${device} type dummy`;
}

/** The line that deletes a device with its addresses. */
export function deleteLinkLine(device: string): string {
  return `link del ${device}`;
}

/** The line that gives a device one address without a network. */
export function addAddressLine(device: string, address: string): string {
  return `address add ${hostCidrText(address)} dev ${device}`;
}

export function deleteAddressLine(device: string, address: string): string {
  return `address del ${hostCidrText(address)} dev ${device}`;
}

/** A device as `ip -json -details` prints it. */
export interface Link {
  readonly device: string;
  /** Kind of the device: `dummy`, `veth`, …; `""`: hardware. */
  readonly kind: string;
  /** Bytes; 0 if `ip` does not print it. */
  readonly mtu: number;
  /** True unless the device is down. */
  readonly isUp: boolean;
  /** Addresses of the device; empty if the text lists links only. */
  readonly addresses: readonly DeviceAddress[];
}

/**
 * Reads the text of `ip -json -details link` or `address`, in its order.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseLinks(text: string): readonly Link[] {
  return readRecords(text).flatMap((link): Link[] => {
    const { ifname: device, flags, mtu, linkinfo } = link;
    // Empty objects stand for devices that a filter left out.
    if (typeof device !== "string") return [];
    const kind = isRecord(linkinfo) ? linkinfo["info_kind"] : undefined;
    return [{
      device,
      kind: typeof kind === "string" ? kind : "",
      mtu: typeof mtu === "number" && Number.isSafeInteger(mtu) && mtu > 0 ? mtu : 0,
      isUp: Array.isArray(flags) && flags.includes("UP"),
      addresses: recordsIn(link["addr_info"]).flatMap((entry) => addressesOf(device, entry)),
    }];
  });
}

function addressesOf(
  device: string,
  { local, prefixlen: prefixLength, scope }: Readonly<Record<string, unknown>>,
): readonly DeviceAddress[] {
  const ip = typeof local === "string" ? parseIp(local) : null;
  // An address on one end of a tunnel may have no text that is an address.
  if (ip === null || typeof prefixLength !== "number" || !Number.isInteger(prefixLength)) return [];
  if (!(prefixLength >= 0 && prefixLength <= 8 * ip.bytes.length)) return [];
  const text = typeof scope === "string" ? scope : "";
  return [{ device, family: ip.family, address: ip.text, prefixLength, scope: text }];
}

/** The addresses of all devices. @throws {SyntaxError} as {@linkcode parseLinks} */
export function parseDeviceAddresses(text: string): readonly DeviceAddress[] {
  return parseLinks(text).flatMap(({ addresses }) => addresses);
}

const REVERSE_PATH: ReadonlyMap<string, string> = new Map([["off", "0"], ["strict", "1"], ["loose", "2"]]);

/**
 * Reads the text of `ip -json netconf`: settings by the names that sysctl has for them, a dot of a device's name as a slash.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseDeviceSettings(text: string): ReadonlyMap<string, string> {
  return new Map(
    readRecords(text).flatMap((record): [string, string][] => {
      const { family, interface: device, forwarding, rp_filter: filter } = record;
      if (typeof device !== "string" || (family !== "inet" && family !== "inet6")) return [];
      const start = `net.${family === "inet" ? "ipv4" : "ipv6"}.conf.${device.replaceAll(".", "/")}`;
      const filterValue = typeof filter === "string" ? REVERSE_PATH.get(filter) : undefined;
      return [
        ...(typeof forwarding === "boolean"
          ? [[`${start}.forwarding`, forwarding ? "1" : "0"] as [string, string]]
          : []),
        ...(filterValue === undefined ? [] : [[`${start}.rp_filter`, filterValue] as [string, string]]),
      ];
    }),
  );
}

/** A route of the main table. */
export interface Route {
  readonly family: IpFamily;
  /** Destination; `default` is `0.0.0.0/0` or `::/0`. */
  readonly network: string;
  /** Outgoing devices; none: packets are refused. */
  readonly devices: readonly string[];
  readonly metric: number;
}

const DEFAULT_NETWORK: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0/0", IPv6: "::/0" };
const REFUSING: ReadonlySet<unknown> = new Set(["unreachable", "blackhole", "prohibit"]);

/**
 * Reads the text of `ip -json route`, in its order.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseRoutes(text: string, family: IpFamily): readonly Route[] {
  return readRecords(text).flatMap(({ dst, dev, metric, type, nexthops }): Route[] => {
    if (typeof dst !== "string") return [];
    const network = dst === "default" ? DEFAULT_NETWORK[family] : dst.includes("/") ? dst : hostCidrText(dst);
    const devices = [dev, ...recordsIn(nexthops).map((hop) => hop["dev"])]
      .filter((name) => typeof name === "string");
    return [{
      family,
      network,
      devices: REFUSING.has(type) ? [] : devices,
      metric: typeof metric === "number" ? metric : 0,
    }];
  });
}

/** Objects that `ip -json` prints; none for an empty text. @throws {SyntaxError} if it is no list */
export function readRecords(text: string): readonly Readonly<Record<string, unknown>>[] {
  if (text.trim() === "") return [];
  const value: unknown = JSON.parse(text);
  if (!Array.isArray(value)) throw new SyntaxError("The ip program did not print a list");
  return value.filter(isRecord);
}

function recordsIn(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.filter(isRecord) : [];
}
