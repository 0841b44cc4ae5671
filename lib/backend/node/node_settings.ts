/**
 * The settings of each IP family as the Node decides them, in every mode: proxiers follow them, and the log says once what is wrong with
 * them.
 *
 * @module
 */
import { likelyClusterCidrs } from "../../model/cluster_networks.ts";
import type { LocalDetection } from "../../model/node.ts";
import type { IpFamily, NodeObject } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import type { FamilyProxier } from "../backend.ts";
import type { ModeContext } from "./mode.ts";

const EFFECT = "what comes to cluster IPs from outside of the cluster is masqueraded only with masqueradeAll";

/** The settings of one family; the Node is null if it is not known. */
export type SettingsOf<Settings> = (family: IpFamily, node: NodeObject | null) => Settings;

/** A proxier whose settings may change. */
export interface ConfigurableProxier<Settings> extends FamilyProxier {
  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: Settings): boolean;
}

/** The settings without the problem of local traffic detection, which is logged once. */
export function loggedSettings<Settings>(
  { config, log }: Pick<ModeContext, "config" | "log">,
  configured: SettingsOf<{ readonly options: Settings; readonly problem: LocalDetection["problem"] }>,
): SettingsOf<Settings> {
  const logged = new Set<string>();
  return (family, node) => {
    const { options, problem } = configured(family, node);
    // Before the Node is there, its pod CIDRs are unknown.
    const tooEarly = node === null && config.detectLocalMode === "NodeCIDR";
    if (problem === null || tooEarly) return options;
    // Logged again once the Node says what should be there.
    const likelyClusterCIDR = config.detectLocalMode === "ClusterCIDR"
      ? likelyClusterCidrs(node?.podCIDRs ?? []).get(family)
      : undefined;
    // In mode userspace packets come from kproxy's own sockets, for all clients.
    const effect = config.mode === "userspace" ? undefined : EFFECT;
    const key = [family, problem.message, likelyClusterCIDR].join(" ");
    if (!logged.has(key)) {
      log.info("Local traffic is not told apart", {
        family,
        problem: problem.message,
        effect,
        likelyClusterCIDR,
      });
    }
    logged.add(key);
    return options;
  };
}

/** Takes the Node's facts over; yields the families whose rules that changes. */
export function reconfigureProxiers<Settings>(
  proxiers: readonly ConfigurableProxier<Settings>[],
  settingsOf: SettingsOf<Settings>,
  node: NodeObject | null,
): readonly IpFamily[] {
  return proxiers.filter((proxier) => proxier.configure(settingsOf(proxier.family, node)))
    .map(({ family }) => family);
}

/** Logs which IP families are served. */
export function logFamilies(families: Iterable<IpFamily>, log: Logger): void {
  const served = [...families];
  log.info(served.length === 2 ? "Running in dual-stack mode" : "Running in single-stack mode", {
    families: served,
  });
}
