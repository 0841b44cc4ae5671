/**
 * What a proxy mode offers the program beside planning and applying: getting a node ready for it.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { RefusedFamily } from "../../kernel/ip_families.ts";
import type { NodeSysctls } from "../../kernel/sysctl.ts";
import type { IpFamily, NodeObject } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import type { ServiceTraffic } from "../../model/service_traffic.ts";
import type { Logger } from "../../observe/log.ts";
import type { PacketCounts } from "../../observe/metrics.ts";
import type { Registry } from "../../observe/prom_client.ts";
import type { FamilyProxier } from "../backend.ts";
import type { ProcessWide } from "./process_wide.ts";

/** What preparing a mode may use. */
export interface ModeContext {
  readonly exec: Exec;
  readonly config: KubeProxyConfiguration;
  readonly log: Logger;
  /** Some of which were read before. */
  readonly sysctls: NodeSysctls;
  /** Of work that goes on between syncs. Default: the machine's. */
  readonly clock?: Clock;
  /** What the proxy servers of the process share. Default: nothing. */
  readonly processWide?: ProcessWide;
}

/** A mode on a node that can run it. */
export interface PreparedMode {
  /** One for each IP family the node can serve, the primary one among them. */
  readonly proxiers: readonly FamilyProxier[];
  /** The families that this node cannot have, and why. */
  readonly refused: readonly RefusedFamily[];
  /** Takes the Node's facts over; yields the families whose rules that changes, so that they must be written again. */
  reconfigure(node: NodeObject | null): readonly IpFamily[];
  /**
   * Takes the networks of ServiceCIDRs over, both families; yields the families whose rules that changes: a sync writes the
   * difference. Only modes whose rules depend on them have it, and only for those are they asked for.
   */
  setServiceCidrs?(networks: readonly string[]): readonly IpFamily[];
  /** What the rules have counted; what cannot be read now is left out. Never rejects. Only where rules count. */
  readonly packetCounts?: () => Promise<Partial<PacketCounts>>;
  /** What Services' counters say, as far as they can be read; never rejects. Only where they are switched on and the mode has them. */
  readonly serviceTraffic?: () => Promise<readonly ServiceTraffic[]>;
  /** Adds what only this mode counts. */
  addMetrics?(registry: Registry): void;
  /** The ports on which kproxy itself takes traffic for Services, as they are now. Only where it does. */
  readonly portals?: () => NodePortals;
  /** True if tracked UDP flows are the mode's own affair: they lead to the node itself and not to endpoints. */
  readonly keepsFlows?: boolean;
  /** Ends work that goes on between syncs. Called after the last sync; what is in the kernel stays. */
  close?(): Promise<void>;
}

/**
 * Probes the node, sets what the mode needs of it and makes the proxiers.
 *
 * @throws {UnsupportedError} naming the missing module, tool or setting, if the node cannot run the mode
 */
export type PrepareMode = (context: ModeContext) => Promise<PreparedMode>;
