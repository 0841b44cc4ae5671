/**
 * The interfaces of the machine, as the runtime tells them.
 *
 * @module
 */
import type { DeviceAddress } from "../netfilter/ip_batch.ts";

/** Addresses of all interfaces of the node, both families. */
export function interfaceIps(): readonly string[] {
  return Deno.networkInterfaces().map(({ address }) => address);
}

/**
 * As {@linkcode interfaceIps}, with the interfaces; their scopes are unknown. Those of the device of Services are among them on
 * some kernels.
 */
export function interfaceAddresses(): readonly DeviceAddress[] {
  return Deno.networkInterfaces().map(({ name, family, address, cidr }) => ({
    device: name,
    family,
    address,
    prefixLength: Number(cidr.slice(cidr.indexOf("/") + 1)),
    scope: "",
  }));
}
