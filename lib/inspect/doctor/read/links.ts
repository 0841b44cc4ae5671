/**
 * Reads the devices of the node and by which of them packets leave it.
 *
 * @module
 */
import type { Exec } from "../../../kernel/exec.ts";
import { defaultRouteDevices, readLinks } from "../../../kernel/ip_address.ts";
import type { Link } from "../../../netfilter/ip_batch.ts";

/** The devices, and those of the default routes of both families. */
export interface LinksFact {
  readonly links: readonly Link[];
  readonly uplinks: readonly string[];
}

export async function readLinksFact(exec: Exec): Promise<LinksFact> {
  const [links, ...uplinks] = await Promise.all([
    readLinks(exec),
    defaultRouteDevices(exec, "IPv4"),
    // Without IPv6 in the kernel the program fails, which says that there is no route.
    defaultRouteDevices(exec, "IPv6").catch(() => []),
  ]);
  return { links, uplinks: [...new Set(uplinks.flat())] };
}
