/**
 * The words shared by the planner, the difference and the applier of userspace mode: plain data and no decisions.
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

/** A rule that leads packets to a portal, whose port is not known yet. */
export interface Doorway {
  readonly table: Table;
  readonly chain: string;
  /** What stands before the port. */
  readonly before: string;
  /** What stands behind it. */
  readonly after: string;
  readonly portal: PortalId;
}

/** What one Service wants. */
export interface ServicePortals {
  readonly portals: readonly Portal[];
  /** In the order of the rules. */
  readonly doorways: readonly Doorway[];
  /** Ports that this mode cannot serve, and why. */
  readonly unserved: readonly { readonly text: string; readonly reason: string }[];
}

/** What the changed Services (or all) want; null: the Service is gone. */
export type UserspacePlan = ReadonlyMap<NamespacedName, ServicePortals | null>;

/** A rule in one of our chains. */
export interface PortalRule {
  readonly table: Table;
  readonly chain: string;
  /** Without the leading `-A CHAIN `. */
  readonly rule: string;
}
