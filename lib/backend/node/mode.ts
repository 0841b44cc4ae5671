/**
 * What a proxy mode offers the program beside planning and applying: getting a node ready for it.
 *
 * @module
 */
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
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

/** 0: connection tracking calls packets INVALID that only look odd. */
export const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";
/** 1: packets with addresses of loopback may leave it. */
export const ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet";
/** 1: packets that IPVS balances are tracked. */
export const VS_CONNTRACK = "net.ipv4.vs.conntrack";
/** 1: a connection ends with its real server. */
export const EXPIRE_NODEST_CONN = "net.ipv4.vs.expire_nodest_conn";
/** 1: session affinity ends with its real server. */
export const EXPIRE_QUIESCENT_TEMPLATE = "net.ipv4.vs.expire_quiescent_template";
/** What IPVS does with a connection from a port that was used before. */
export const CONN_REUSE_MODE = "net.ipv4.vs.conn_reuse_mode";
/** 1: the node forwards packets. */
export const IP_FORWARD = "net.ipv4.ip_forward";

const OF_MODE: Readonly<Partial<Record<ProxyMode, readonly string[]>>> = {
  iptables: [BE_LIBERAL, ROUTE_LOCALNET],
  ipvs: [VS_CONNTRACK, EXPIRE_NODEST_CONN, EXPIRE_QUIESCENT_TEMPLATE, CONN_REUSE_MODE, IP_FORWARD],
};

/** Those that the modes will want to know, each once. */
export function modeSysctls(modes: readonly ProxyMode[]): readonly string[] {
  return [...new Set(modes.flatMap((mode) => OF_MODE[mode] ?? []))];
}

/** Something that the proxy servers of a process share. */
export interface Shared {
  /** True if rules go with the process, because nothing is behind them then. Default: they stay. */
  readonly takesRulesAway?: boolean;
  /** The rules of a proxy server are in force, those of all IP families. */
  inForce(): void;
  /** Ends it; resolves when it has ended, or soon after `signal` aborts. */
  end(signal: AbortSignal): Promise<void>;
}

/** One of each kind, made when it is first asked for. */
export class ProcessWide {
  readonly #kept = new Map<unknown, Shared>();

  /** @param exec starts programs at the end of the process, when those of its proxy servers have ended; without it none are started then */
  constructor(readonly exec?: Exec) {}

  /** True if rules go with the process. */
  get takesRulesAway(): boolean {
    return [...this.#kept.values()].some((shared) => shared.takesRulesAway === true);
  }

  /** The one of this kind. */
  share<T extends Shared>(kind: new () => T): T {
    let found = this.#kept.get(kind);
    if (found === undefined) this.#kept.set(kind, found = new kind());
    return found as T;
  }

  /** As of {@linkcode Shared}. */
  inForce(): void {
    for (const shared of this.#kept.values()) shared.inForce();
  }

  /** Ends all. */
  async end(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#kept.values()].map((shared) => shared.end(signal)));
  }
}
