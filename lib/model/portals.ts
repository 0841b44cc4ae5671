/**
 * Ports of the node on which kproxy itself takes traffic for Services, as userspace mode has them.
 *
 * @module
 */
import { FLAG, list, NUMBER, object, record, type Shaped, type ShapedFields, text } from "../text/shape.ts";
import type { IpFamily } from "./objects.ts";

const PORTAL = object({
  family: text<IpFamily>(),
  /** `ns/name:port`, or `ns/name` for an unnamed port. */
  servicePort: text(),
  protocol: text<"TCP" | "UDP">(),
  /** Whose endpoints it leads to. */
  policy: text<"Cluster" | "Local">(),
  /** What it listens on; `0.0.0.0` and `::` stand for all addresses. */
  address: text(),
  port: NUMBER,
  /** `IP:port` of each. */
  endpoints: list(text()),
  /** For how long a client keeps its endpoint; 0: endpoints take turns. */
  affinitySeconds: NUMBER,
});

/** A portal. */
export type PortalFacts = Shaped<typeof PORTAL>;

const IPTABLES_FACTS = object({ dnat: FLAG, physdev: FLAG, firewall: FLAG });

/** Of {@linkcode NodePortals}. */
export const NODE_PORTALS = {
  portals: list(PORTAL),
  /** Of the families that rules lead to. */
  iptables: record<Shaped<typeof IPTABLES_FACTS>, IpFamily>(IPTABLES_FACTS),
};

/** All of them, and what the node's iptables has that their rules go by. */
export type NodePortals = ShapedFields<typeof NODE_PORTALS>;
