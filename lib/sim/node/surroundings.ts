/**
 * What decides about a packet on a node besides its rules.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import type { Surroundings } from "../packet_walk.ts";

/** The node around the rules. What is not known stops no packet. */
export interface NodeSurroundings extends Surroundings {
  /** Why packets that are not for the node are not passed on, e.g. `net.ipv4.ip_forward is 0`; null: they are, or nobody knows. */
  readonly notForwarding: Readonly<Record<IpFamily, string | null>>;
  /** Interfaces that are not up. */
  readonly downInterfaces: ReadonlySet<string>;
  /** The interface through which a packet to the address leaves; null: there is no way; undefined: not known. */
  readonly outInterface: (address: string) => string | null | undefined;
  /** Interfaces on which a source is only taken if the way back to it is through them (`rp_filter` 1). */
  readonly strictInterfaces: ReadonlySet<string>;
  /**
   * Interfaces that take packets from and to 127.0.0.0/8 (`route_localnet` 1); the others drop them, but for `lo`. Null: not known.
   */
  readonly localnetInterfaces: ReadonlySet<string> | null;
}

/** Only addresses are known. */
export function plainSurroundings(surroundings: Surroundings): NodeSurroundings {
  return {
    ...surroundings,
    notForwarding: { IPv4: null, IPv6: null },
    downInterfaces: new Set(),
    outInterface: () => undefined,
    strictInterfaces: new Set(),
    localnetInterfaces: null,
  };
}
