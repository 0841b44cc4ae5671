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
  /** Traffic policy: endpoints of all nodes, or of this one. */
  policy: text<"Cluster" | "Local">(),
  /** Listen address; `0.0.0.0` and `::` stand for all addresses. */
  address: text(),
  port: NUMBER,
  /** `IP:port` of each endpoint. */
  endpoints: list(text()),
  /** Session affinity timeout of a client; 0: round robin. */
  affinitySeconds: NUMBER,
});

/** A port of the node on which kproxy takes traffic for a ServicePort. */
export type PortalFacts = Shaped<typeof PORTAL>;

const IPTABLES_FACTS = object({ dnat: FLAG, physdev: FLAG, firewall: FLAG });

/** Fields of {@linkcode NodePortals}. */
export const NODE_PORTALS = {
  portals: list(PORTAL),
  /** Capabilities of iptables, by family in which rules lead to portals. */
  iptables: record<Shaped<typeof IPTABLES_FACTS>, IpFamily>(IPTABLES_FACTS),
};

/** All portals of the node, and the capabilities of its iptables that their rules depend on. */
export type NodePortals = ShapedFields<typeof NODE_PORTALS>;
