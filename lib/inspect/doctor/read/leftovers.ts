/**
 * Looks for what other modes left on the node, by the dry run of a cleanup.
 *
 * @module
 */
import { countLeftovers } from "../../../backend/node/cleanup.ts";
import { removeLeftovers } from "../../../backend/node/leftovers.ts";
import { CLEANUP_MODES, type CleanupMode, type KubeProxyConfiguration } from "../../../config/types.ts";
import { FAMILIES } from "../../../model/objects.ts";
import type { Exec } from "../../../kernel/exec.ts";
import { errorText } from "../../../observe/log.ts";
import { type Fact, known } from "../fact.ts";
import type { ModeFact } from "./mode.ts";

/** What there is of other modes. */
export interface Leftovers {
  /** In words, e.g. `3 tables of nft`; empty if there is nothing. */
  readonly found: readonly string[];
  /** The modes that were looked for. */
  readonly modes: readonly CleanupMode[];
  /** What could not be looked at, and why. */
  readonly failed: readonly string[];
}

/** What decides where to look. */
export interface LeftoverQuestion {
  readonly config: KubeProxyConfiguration;
  readonly mode: Fact<ModeFact>;
}

/** Changes nothing. */
export async function readLeftovers(exec: Exec, { config, mode }: LeftoverQuestion): Promise<Leftovers> {
  const fact = known(mode);
  const runs = fact?.kind === "works" ? fact.mode : config.mode;
  const modes = leftoverModes(runs);
  const report = await removeLeftovers(modes, {
    exec,
    families: FAMILIES,
    dryRun: true,
    flushIpvs: false,
    excludeCidrs: config.ipvs.excludeCIDRs ?? [],
  });
  return {
    found: countLeftovers(report).map(([kind, count]) => `${count} ${kind}`),
    modes,
    failed: report.failed.map(({ place, error }) => `${place}: ${errorText(error)}`),
  };
}

/**
 * Which modes' leftovers can be told from what runs. Where iptables writes the rules that are in force, looking for chains of others
 * would read all of them, which takes seconds on a large node; tables of nftables are looked for there.
 */
function leftoverModes(runs: string): readonly CleanupMode[] {
  if (runs === "iptables" || runs === "ipvs" || runs === "auto") return ["nftables"];
  return CLEANUP_MODES.filter((mode) => mode !== runs);
}
