/**
 * Follows the own Node: its zone, addresses and pod CIDRs decide rules, and may change while the proxy runs.
 *
 * @module
 */
import { within } from "../kernel/clock.ts";
import { clusterCidrProblem } from "../config/families.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { UnsupportedError } from "../errors.ts";
import type { RefusedFamily } from "../kernel/ip_families.ts";
import { parseCidr } from "../model/ip.ts";
import { nodeIps, nodeZone, ownAddresses, unreadNode } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { FamilyRunner } from "../sync/family_runner.ts";
import type { EventHandlers } from "../sync/event_handlers.ts";

/** How long the first sync waits for the Node: whether there is one and, where rules need them, its addresses. */
const NODE_MS = 30_000;
/** How long mode NodeCIDR waits for the node's pod CIDRs, as kube-proxy does. */
const POD_CIDRS_MS = 300_000;

const RBAC_ADVICE = "grant get, list and watch of nodes in the ClusterRole (RBAC)";

export interface NodeWatchOptions {
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  /** False if the source is files alone: a Node that is not in them is neither awaited nor reported as missing. */
  readonly isNodeExpected: boolean;
  readonly runners: readonly FamilyRunner[];
  readonly refused: readonly RefusedFamily[];
  readonly mode: { reconfigure(node: NodeObject | null): readonly IpFamily[] };
  /** Receives a Node without any facts when rules must be made without the real one. */
  readonly onUnread?: (node: NodeObject) => void;
  readonly log: Logger;
}

type NodeNews = Pick<EventHandlers, "whenSynced" | "refusal">;

/** Passes facts of the Node on to the families. */
export class NodeWatch {
  readonly #options: NodeWatchOptions;
  readonly #podCidrs = Promise.withResolvers<void>();
  readonly #addresses = Promise.withResolvers<void>();
  #isKnown = false;
  #hasAddresses = false;
  /** True once pod CIDRs are in use. */
  #hasPodCidrs = false;
  /** True once the log said that the Node or its addresses are missing. */
  #wasMissed = false;
  /** Set if the node's primary family cannot be served. */
  #unservable: UnsupportedError | null = null;

  constructor(options: NodeWatchOptions) {
    this.#options = options;
  }

  /** The Node was added or changed; undefined: it is gone, and its last known facts stay in force. */
  take(node: NodeObject | undefined, initialized: boolean): void {
    const { log } = this.#options;
    if (node === undefined) {
      log.warn("Own Node is gone, its last known facts stay in force");
      return;
    }
    this.#isKnown = true;
    this.#noteAddresses(node);
    this.#judgeAddresses(node, initialized);
    if (this.#options.config.detectLocalMode === "NodeCIDR" && !this.#takePodCidrs(node)) return;
    this.#reconfigure(node, initialized);
    if (node.podCIDRs.length > 0) this.#podCidrs.resolve();
  }

  /** Passes the node's own addresses on, which may decide the served external IPs and load-balancer IPs. */
  #judgeAddresses(node: NodeObject, initialized: boolean): void {
    const { runners, config } = this.#options;
    const addresses = ownAddresses(node, config.bindAddress);
    for (const runner of runners) {
      if (runner.tracker.setNodeAddresses(addresses) && initialized) runner.requestSync();
    }
  }

  #reconfigure(node: NodeObject, initialized: boolean): void {
    const { runners, mode, log } = this.#options;
    try {
      const changed = new Set(mode.reconfigure(node));
      for (const runner of runners) {
        if (runner.tracker.setZone(nodeZone(node))) changed.add(runner.family);
        if (changed.has(runner.family)) runner.requireFullSync();
        if (changed.has(runner.family) && initialized) runner.requestSync();
      }
      // Before the first syncs it changes nothing: there are no rules yet.
      if (changed.size > 0 && initialized) {
        log.info("Node changed what the rules depend on", { families: [...changed], node: node.name });
      }
    } catch (error) {
      log.error("Cannot use what the Node says", error, { node: node.name });
    }
  }

  /**
   * False if the pod CIDRs cannot detect local traffic of the primary family. At the start this ends the
   * proxy; later the former ones stay in force.
   */
  #takePodCidrs(node: NodeObject): boolean {
    const { runners, config, log } = this.#options;
    const only = runners.length === 1 ? runners[0]?.family : undefined;
    const primary = only ?? nodeIps(node, config.bindAddress).primaryFamily;
    const hasOne = node.podCIDRs.some((cidr) => parseCidr(cidr)?.family === primary);
    if (node.podCIDRs.length === 0 || hasOne) {
      this.#hasPodCidrs ||= hasOne;
      return true;
    }
    const other = primary === "IPv4" ? "IPv6" : "IPv4";
    const error = new Error(
      `kube-proxy configuration is incorrect: cluster is ${primary}-${
        only === undefined ? "primary" : "only"
      } ` +
        `but node.spec.podCIDRs contains only ${other} addresses (detectLocalMode NodeCIDR)`,
    );
    if (this.#hasPodCidrs) log.error("Cannot use the Node's new pod CIDRs", error, { node: node.name });
    else this.#podCidrs.reject(error);
    return false;
  }

  /**
   * Resolves when the first sync may run: the source has said whether there is a Node, or has not for 30 s; where
   * `nodePortAddresses` names the primary address, when that is known, or is not after 30 s: without it no node port is open, and
   * those of an earlier start would be closed; in mode NodeCIDR, when the pod CIDRs are known. What comes later is taken over then.
   *
   * @returns false if `signal` was aborted before: rules made from half of the facts would stay behind
   * @throws {Error} in mode NodeCIDR if there are no pod CIDRs after 5 min, or none of the primary family
   * @throws {UnsupportedError} if the family of the Node's first address cannot be served, as where it is known before
   */
  async whenReady(news: NodeNews, signal: AbortSignal): Promise<boolean> {
    const isReady = await this.#whenReady(news, signal);
    if (isReady && this.#unservable !== null) throw this.#unservable;
    return isReady;
  }

  async #whenReady(news: NodeNews, signal: AbortSignal): Promise<boolean> {
    const { config, log, nodeName, isNodeExpected } = this.#options;
    if (config.detectLocalMode === "NodeCIDR") {
      if (await within(this.#podCidrs.promise, POD_CIDRS_MS, signal) !== null) return true;
      if (signal.aborted) return false;
      const refusal = news.refusal("nodes");
      throw new Error(
        "Timed out waiting for the own Node to have spec.podCIDRs, which detectLocalMode NodeCIDR needs" +
          (refusal === null ? "" : `; ${RBAC_ADVICE}: ${refusal}`),
      );
    }
    const deadlineMs = performance.now() + NODE_MS;
    const isListed = await within(news.whenSynced("nodes"), NODE_MS, signal) !== null;
    if (signal.aborted) return false;
    if (!isListed) log.warn("Starting without knowing the own Node", { node: nodeName });
    else if (isNodeExpected && !this.#hasAddresses) this.#logMissing(news.refusal("nodes"));
    if (!isNodeExpected || !needsPrimaryIp(config) || this.#hasAddresses) return true;
    const isThere = await within(this.#addresses.promise, deadlineMs - performance.now(), signal) !== null;
    if (signal.aborted) return false;
    if (!isThere) this.#doWithoutAddress(news.refusal("nodes"));
    return true;
  }

  /** Serves without node ports: open on every address they would be reached from where they are not meant to be. */
  #doWithoutAddress(refusal: string | null): void {
    const { log, nodeName, onUnread } = this.#options;
    this.#wasMissed = true;
    log.warn(
      "The primary address is not known: everything is served but node ports, which are open nowhere",
      {
        node: nodeName,
        problem: refusal ?? undefined,
        advice: refusal === null ? "set --bind-address or --hostname-override" : RBAC_ADVICE,
      },
    );
    if (this.#isKnown) return;
    const unread = unreadNode(nodeName);
    this.#reconfigure(unread, false);
    onUnread?.(unread);
  }

  #logMissing(refusal: string | null): void {
    const { log, nodeName, config } = this.#options;
    this.#wasMissed = true;
    const awaited = needsPrimaryIp(config) ? `${NODE_MS / 1000}s` : undefined;
    if (this.#isKnown) log.warn("The own Node has no addresses yet", { node: nodeName, awaited });
    else if (refusal !== null) {
      log.warn("The Node may not be read, so nothing is known of its addresses and zone", {
        node: nodeName,
        problem: refusal,
        awaited,
        advice: RBAC_ADVICE,
      });
    } else {
      const advice = "if it should have one, compare its name with --hostname-override";
      log.warn("There is no Node of this name, so nothing is known of its addresses and zone", {
        node: nodeName,
        awaited,
        advice,
      });
    }
  }

  #noteAddresses(node: NodeObject): void {
    if (this.#hasAddresses || nodeIps(node, "").primaryIsLoopback) return;
    const { config, runners, refused, log } = this.#options;
    this.#hasAddresses = true;
    this.#addresses.resolve();
    if (this.#wasMissed) log.info("The own Node has addresses now", { node: node.name });
    const { primaryFamily } = nodeIps(node, config.bindAddress);
    const cause = refused.find(({ family }) => family === primaryFamily);
    if (cause !== undefined) this.#unservable = primaryFamilyError(primaryFamily, cause.reason);
    const problem = runners.length === 1 ? null : clusterCidrProblem(config, primaryFamily, "primarily");
    if (problem !== null) {
      log.warn("Configuration may be incomplete or incorrect", {
        field: problem.path,
        problem: problem.message,
      });
    }
  }
}

function primaryFamilyError(family: IpFamily, reason: string): UnsupportedError {
  const message =
    `the primary IP family ${family}, that of the Node's first address, cannot be served: ${reason}`;
  return new UnsupportedError(`Primary IP family ${family}`, family, reason, { message });
}

/** True if rules depend on an address that only the Node has. */
function needsPrimaryIp({ nodePortAddresses, bindAddress }: KubeProxyConfiguration): boolean {
  return (nodePortAddresses ?? []).includes("primary") && nodeIps(null, bindAddress).primaryIsLoopback;
}
