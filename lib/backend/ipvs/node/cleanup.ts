/**
 * What IPVS mode leaves behind: virtual servers, the device with their addresses, sets.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import { listSets } from "../../../kernel/ipset.ts";
import type { CleanupContext, LeftoverReport, ModeCleanup } from "../../node/cleanup.ts";
import { cleanupServers } from "./cleanup_servers.ts";
import { cleanupSets } from "./cleanup_sets.ts";
import { FIREWALL_JUMP_COMMENT, PROBE_CHAIN } from "../plan/sets.ts";

export const IPVS_CLEANUP: ModeCleanup = {
  mode: "ipvs",
  tellsApart: [],
  chains: {
    // KUBE-FIREWALL in nat is of kube-proxy before 1.24; kubelet's chain of this name is in filter.
    nat: ["KUBE-FIREWALL", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"],
    filter: [
      "KUBE-IPVS-FILTER",
      "KUBE-IPVS-OUT-FILTER",
      "KUBE-NODE-PORT",
      "KUBE-SOURCE-RANGES-FIREWALL",
      PROBE_CHAIN,
    ],
    mangle: [],
  },
  jumpComments: [FIREWALL_JUMP_COMMENT],
  removeOthers: async (context) => {
    // The sets tell which servers are ours, so they go last.
    const servers = await cleanupServers(context, await setNamesHere(context));
    return joinReports([servers, await cleanupSets(context)]);
  },
};

/** Names of all sets; none if nobody can tell, which the cleanup of the sets reports. */
async function setNamesHere({ exec }: CleanupContext): Promise<readonly string[]> {
  try {
    return await listSets(exec);
  } catch (error) {
    if (error instanceof ExecError) return [];
    throw error;
  }
}

function joinReports(reports: readonly LeftoverReport[]): LeftoverReport {
  return {
    removed: reports.flatMap(({ removed }) => removed),
    kept: reports.flatMap(({ kept }) => kept),
    failed: reports.flatMap(({ failed }) => failed),
  };
}
