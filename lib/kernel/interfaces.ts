/**
 * The interfaces of the machine, as the runtime tells them.
 *
 * @module
 */

/** Addresses of all interfaces of the node, both families. */
export function interfaceIps(): readonly string[] {
  return Deno.networkInterfaces().map(({ address }) => address);
}
