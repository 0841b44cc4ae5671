/**
 * What the kernel should hold of a cluster's endpoints, and what it does.
 *
 * @module
 */
import { type ClusterSize, endpointIp } from "./fake_objects.ts";

/** Addresses of all endpoints; `touched` names the Services whose first endpoint is another one. */
export function wantedEndpoints(size: ClusterSize, touched: ReadonlySet<number>): Set<string> {
  const wanted = new Set<string>();
  for (let index = 0; index < size.services; index++) {
    for (let endpoint = 0; endpoint < size.endpoints; endpoint++) {
      wanted.add(endpointIp(index, endpoint, size, touched.has(index)));
    }
  }
  return wanted;
}

/** How many of the wanted ones are missing, and how many others there are. */
export function difference(
  wanted: ReadonlySet<string>,
  held: ReadonlySet<string>,
): { readonly missing: number; readonly extra: number } {
  return { missing: wanted.difference(held).size, extra: held.difference(wanted).size };
}
