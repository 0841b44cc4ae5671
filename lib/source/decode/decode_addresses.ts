/**
 * Which addresses an API server takes, for objects that none has seen.
 *
 * @module
 */
import { type Ip, parseIp, specialUse } from "../../model/ip.ts";
import { DecodeError } from "./decode_values.ts";
import { quote } from "../../text/quote.ts";

/**
 * Refuses addresses that no host of a cluster has.
 *
 * @param useOf why an address is not to be taken, e.g. `a loopback address`; null if it is
 * @throws {DecodeError} with that reason
 */
export function checkNoSpecialUse(text: string, useOf: (ip: Ip) => string | null): void {
  const ip = parseIp(text);
  const use = ip === null ? null : useOf(ip);
  if (use !== null) throw new DecodeError("", `must not be ${use}, found ${quote(text)}`);
}

/**
 * What an API server refuses as the address of an endpoint: kinds of addresses that would lead back to the node or its link.
 *
 * Source: Kubernetes 1.36 ValidateNonSpecialIP, which takes multicast addresses beyond the link, and broadcast.
 */
export function refusedEndpointUse(ip: Ip): string | null {
  const use = specialUse(ip);
  const isMulticast = use === "a multicast address";
  const isOfLink = ip.family === "IPv4"
    ? ip.bytes[1] === 0 && ip.bytes[2] === 0
    : ((ip.bytes[1] ?? 0) & 0x0f) === 2;
  if (isMulticast) return isOfLink ? "a multicast address of the link" : null;
  return use === "the broadcast address" ? null : use;
}
