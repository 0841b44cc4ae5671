/**
 * Text of the `ip` program: lines for `ip -batch -`, and what `ip -json` says of devices and their addresses.
 *
 * @module
 */
import { parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";

/** One address of a device. */
export interface DeviceAddress {
  readonly device: string;
  readonly family: IpFamily;
  /** Canonical text. */
  readonly address: string;
  readonly prefixLength: number;
  /** `global`, `link`, `host`, … */
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
  return `address add ${address}/${hostPrefixLength(address)} dev ${device}`;
}

export function deleteAddressLine(device: string, address: string): string {
  return `address del ${address}/${hostPrefixLength(address)} dev ${device}`;
}

function hostPrefixLength(address: string): number {
  return address.includes(":") ? 128 : 32;
}

/**
 * Reads the text of `ip -json address`, in its order.
 *
 * @throws {SyntaxError} if it is none
 */
export function parseDeviceAddresses(text: string): readonly DeviceAddress[] {
  const addresses: DeviceAddress[] = [];
  for (const link of readRecords(text)) {
    for (const entry of Array.isArray(link["addr_info"]) ? link["addr_info"].filter(isRecord) : []) {
      const ip = parseIp(String(entry["local"]));
      // An address on one end of a tunnel may have no text that is an address.
      if (ip === null) continue;
      addresses.push({
        device: String(link["ifname"]),
        family: ip.family,
        address: ip.text,
        prefixLength: Number(entry["prefixlen"]),
        scope: String(entry["scope"]),
      });
    }
  }
  return addresses;
}

/**
 * Reads the text of `ip -json -details link`: device → what it is (`dummy`, `veth`, …), `""` for a device of hardware.
 *
 * @throws {SyntaxError} if it is none
 */
export function parseLinkKinds(text: string): ReadonlyMap<string, string> {
  return new Map(
    readRecords(text).map((link) => {
      const details = link["linkinfo"];
      const kind = isRecord(details) ? details["info_kind"] : undefined;
      return [String(link["ifname"]), typeof kind === "string" ? kind : ""];
    }),
  );
}

/** A device as `ip -json -details link` tells of it. */
export interface Link {
  readonly device: string;
  /** As in {@linkcode parseLinkKinds}. */
  readonly kind: string;
  /** Bytes; 0 if it does not say. */
  readonly mtu: number;
  /** True unless it is switched off. */
  readonly isUp: boolean;
}

/**
 * Reads the text of `ip -json -details link`, in its order.
 *
 * @throws {SyntaxError} if it is none
 */
export function parseLinks(text: string): readonly Link[] {
  const kinds = parseLinkKinds(text);
  return readRecords(text).map((link) => {
    const device = String(link["ifname"]);
    const flags = Array.isArray(link["flags"]) ? link["flags"] : [];
    const mtu = Number(link["mtu"]);
    return {
      device,
      kind: kinds.get(device) ?? "",
      mtu: Number.isSafeInteger(mtu) && mtu > 0 ? mtu : 0,
      isUp: flags.includes("UP"),
    };
  });
}

/**
 * Reads the text of `ip -json route`: the devices that routes leave by, each once.
 *
 * @throws {SyntaxError} if it is none
 */
export function parseRouteDevices(text: string): readonly string[] {
  const routes: unknown = text.trim() === "" ? [] : JSON.parse(text);
  if (!Array.isArray(routes)) throw new SyntaxError("The ip program did not print a list");
  const hops = routes.filter(isRecord).flatMap((route) => [
    route["dev"],
    ...(Array.isArray(route["nexthops"]) ? route["nexthops"].filter(isRecord).map((hop) => hop["dev"]) : []),
  ]);
  return [...new Set(hops.filter((device) => typeof device === "string"))];
}

/** The program prints an empty text for nothing, and empty objects for what a filter left out. */
function readRecords(text: string): readonly Record<string, unknown>[] {
  if (text.trim() === "") return [];
  const value: unknown = JSON.parse(text);
  if (!Array.isArray(value)) throw new SyntaxError("The ip program did not print a list");
  return value.filter(isRecord).filter((link) => "ifname" in link);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
