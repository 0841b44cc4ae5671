/**
 * Follows the own Node: its zone, addresses and pod CIDRs decide rules, and may change while the proxy runs.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { nodeZone } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { FamilyRunner } from "../sync/family_runner.ts";
import type { ProxyLoop } from "../sync/proxy_loop.ts";

/** How long the first sync waits for the source to say whether there is a Node. */
const NODE_LIST_MS = 30_000;
/** How long mode NodeCIDR waits for the node's pod CIDRs, as kube-proxy does. */
const POD_CIDRS_MS = 300_000;

/** What a {@linkcode NodeWatch} needs. */
export interface NodeWatchOptions {
  readonly config: KubeProxyConfiguration;
  readonly runners: readonly FamilyRunner[];
  readonly mode: { reconfigure(node: NodeObject | null): readonly IpFamily[] };
  readonly log: Logger;
}

/** Passes what the Node says on to the families. */
export class NodeWatch {
  readonly #options: NodeWatchOptions;
  #onPodCidrs: () => void = () => {};
  readonly #podCidrs: Promise<void>;

  constructor(options: NodeWatchOptions) {
    this.#options = options;
    this.#podCidrs = new Promise((resolve) => {
      this.#onPodCidrs = resolve;
    });
  }

  /** The Node was added or changed; undefined: it is gone, and what it said last stays in force. */
  take(node: NodeObject | undefined, initialized: boolean): void {
    const { runners, mode, log } = this.#options;
    if (node === undefined) {
      log.warn("Own Node is gone, its last known facts stay in force");
      return;
    }
    try {
      const changed = new Set(mode.reconfigure(node));
      for (const runner of runners) {
        if (runner.tracker.setZone(nodeZone(node))) changed.add(runner.family);
        if (!changed.has(runner.family)) continue;
        log.info("Node changed what the rules depend on", { family: runner.family, node: node.name });
        runner.requireFullSync();
        if (initialized) runner.requestSync();
      }
    } catch (error) {
      log.error("Cannot use what the Node says", error, { node: node.name });
    }
    if (node.podCIDRs.length > 0) this.#onPodCidrs();
  }

  /**
   * Resolves when the first sync may run: the source has said whether there is a Node, or has not for 30 s; in mode
   * NodeCIDR, when the pod CIDRs are known. A Node that comes later is taken over then.
   *
   * @returns false if `signal` was aborted before: rules made from half of the facts would stay behind
   * @throws {Error} in mode NodeCIDR if there are no pod CIDRs after 5 min
   */
  async whenReady(loop: Pick<ProxyLoop, "whenSynced">, signal: AbortSignal): Promise<boolean> {
    const { config, log } = this.#options;
    const needsPodCidrs = config.detectLocalMode === "NodeCIDR";
    const wait = needsPodCidrs ? this.#podCidrs : loop.whenSynced("nodes");
    if (await within(wait, needsPodCidrs ? POD_CIDRS_MS : NODE_LIST_MS, signal)) return true;
    if (signal.aborted) return false;
    if (needsPodCidrs) {
      throw new Error(
        "Timed out waiting for the own Node to have spec.podCIDRs, which detectLocalMode NodeCIDR needs",
      );
    }
    log.warn("Starting without knowing the own Node");
    return true;
  }
}

/** True if `promise` resolved within `ms` and before `signal` was aborted. */
async function within(promise: Promise<void>, ms: number, signal: AbortSignal): Promise<boolean> {
  let giveUp = () => {};
  const given = new Promise<boolean>((resolve) => {
    giveUp = () => resolve(false);
  });
  const timer = setTimeout(giveUp, ms);
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    return await Promise.race([promise.then(() => true), given]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", giveUp);
  }
}
