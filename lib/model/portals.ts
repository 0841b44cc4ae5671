/**
 * Ports of the node on which kproxy itself takes traffic for Services, as userspace mode has them.
 *
 * @module
 */
import type { IpFamily } from "./objects.ts";

/** A portal. */
export interface PortalFacts {
  readonly family: IpFamily;
  /** `ns/name:port`, or `ns/name` for an unnamed port. */
  readonly servicePort: string;
  readonly protocol: "TCP" | "UDP";
  /** Whose endpoints it leads to. */
  readonly policy: "Cluster" | "Local";
  /** What it listens on; `0.0.0.0` and `::` stand for all addresses. */
  readonly address: string;
  readonly port: number;
  /** `IP:port` of each. */
  readonly endpoints: readonly string[];
  /** For how long a client keeps its endpoint; 0: endpoints take turns. */
  readonly affinitySeconds: number;
}

/** All of them, and what the node's iptables has that their rules go by. */
export interface NodePortals {
  readonly portals: readonly PortalFacts[];
  /** Of the families that rules lead to. */
  readonly iptables: Readonly<
    Partial<
      Record<IpFamily, { readonly dnat: boolean; readonly physdev: boolean; readonly firewall: boolean }>
    >
  >;
}
