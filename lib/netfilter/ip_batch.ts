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

/**
 * Reads the text of `ip -json address`, in its order.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseDeviceAddresses(text: string): readonly DeviceAddress[] {
  const addresses: DeviceAddress[] = [];
  for (const link of readDevices(text)) {
    for (const entry of Array.isArray(link["addr_info"]) ? link["addr_info"].filter(isRecord) : []) {
      const { local, prefixlen: prefixLength, scope } = entry;
      const ip = typeof local === "string" ? parseIp(local) : null;
      // An address on one end of a tunnel may have no text that is an address.
      if (ip === null || typeof prefixLength !== "number" || !Number.isInteger(prefixLength)) continue;
      if (!(prefixLength >= 0 && prefixLength <= 8 * ip.bytes.length)) continue;
      addresses.push({
        device: link.ifname,
        family: ip.family,
        address: ip.text,
        prefixLength,
        scope: typeof scope === "string" ? scope : "",
      });
    }
  }
  return addresses;
}

/**
 * Reads the text of `ip -json -details link`: device → kind (`dummy`, `veth`, …), `""` for a hardware device.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseLinkKinds(text: string): ReadonlyMap<string, string> {
  return new Map(readDevices(text).map((link) => [link.ifname, kindOf(link)]));
}

function kindOf({ linkinfo }: Readonly<Record<string, unknown>>): string {
  const kind = isRecord(linkinfo) ? linkinfo["info_kind"] : undefined;
  return typeof kind === "string" ? kind : "";
}

/** A device as `ip -json -details link` prints it. */
export interface Link {
  readonly device: string;
  /** Kind of the device, as in {@linkcode parseLinkKinds}. */
  readonly kind: string;
  /** Bytes; 0 if `ip` does not print it. */
  readonly mtu: number;
  /** True unless the device is down. */
  readonly isUp: boolean;
}

/**
 * Reads the text of `ip -json -details link`, in its order.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseLinks(text: string): readonly Link[] {
  return readDevices(text).map((link) => {
    const flags = Array.isArray(link["flags"]) ? link["flags"] : [];
    const { mtu } = link;
    return {
      device: link.ifname,
      kind: kindOf(link),
      mtu: typeof mtu === "number" && Number.isSafeInteger(mtu) && mtu > 0 ? mtu : 0,
      isUp: flags.includes("UP"),
    };
  });
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

/**
 * Reads the text of `ip -json route`: the devices that routes leave by, each once.
 *
 * @throws {SyntaxError} if it is no such text
 */
export function parseRouteDevices(text: string): readonly string[] {
  const hops = readRecords(text).flatMap((route) => [
    route["dev"],
    ...(Array.isArray(route["nexthops"]) ? route["nexthops"].filter(isRecord).map((hop) => hop["dev"]) : []),
  ]);
  return [...new Set(hops.filter((device) => typeof device === "string"))];
}

/** Objects that `ip -json` prints; none for an empty text. @throws {SyntaxError} if it is no list */
export function readRecords(text: string): readonly Readonly<Record<string, unknown>>[] {
  if (text.trim() === "") return [];
  const value: unknown = JSON.parse(text);
  if (!Array.isArray(value)) throw new SyntaxError("The ip program did not print a list");
  return value.filter(isRecord);
}

/** Devices, without the empty objects that `ip` prints for filtered ones. */
function readDevices(
  text: string,
): readonly (Readonly<Record<string, unknown>> & { readonly ifname: string })[] {
  return readRecords(text).flatMap(({ ifname, ...link }) =>
    typeof ifname === "string" ? [{ ...link, ifname }] : []
  );
}
