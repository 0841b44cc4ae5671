/**
 * The words shared by the planner and the proxier of userspace mode: plain data and no decisions.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";

/** Names one portal among all of its family: the key of a ServicePort and which of its endpoints it leads to. */
export type PortalId = string;

/** The protocols that a process can forward. */
export type PortalProtocol = "TCP" | "UDP";

/** Which endpoints a portal leads to: those for traffic under policy Cluster, or those of this node. */
export type PortalPolicy = "cluster" | "local";

/** Where a portal may lead. */
export interface PortalEndpoint {
  readonly ip: string;
  readonly port: number;
}

/** A port of kproxy's own that leads to some endpoints of one ServicePort. */
export interface Portal {
  readonly id: PortalId;
  /** `ns/name:port`, for logs. */
  readonly text: string;
  readonly protocol: PortalProtocol;
  /** Whose endpoints these are. */
  readonly policy: PortalPolicy;
  readonly endpoints: readonly PortalEndpoint[];
  /** Seconds of ClientIP affinity; 0 without affinity. */
  readonly stickyMaxAgeSeconds: number;
}

/** A rule about a portal, whose port is not known yet. */
export interface PortalRule {
  readonly table: Table;
  readonly chain: string;
  readonly portal: PortalId;
  /** Without the leading `-A CHAIN `. */
  readonly rule: (port: number) => string;
}

/** What one Service wants. */
export interface ServicePortals<Wanted extends Portal = Portal> {
  readonly portals: readonly Wanted[];
  /** In the order in which they are written. */
  readonly rules: readonly PortalRule[];
  /** Ports that this mode cannot serve, and why. */
  readonly unserved: readonly string[];
}

/** What the changed Services (or all) want; null: the Service is gone. */
export type UserspacePlan<Wanted extends Portal = Portal> = ReadonlyMap<
  NamespacedName,
  ServicePortals<Wanted> | null
>;
