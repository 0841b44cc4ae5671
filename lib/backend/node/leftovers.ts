/**
 * Removes what modes left on a node: their chains of iptables in one transaction per table, then what those chains
 * used. A new mode's cleanup is a line in the list.
 *
 * @module
 */
import type { CleanupMode } from "../../config/types.ts";
import type { CleanupContext, LeftoverReport, ModeCleanup } from "./cleanup.ts";
import { Nft } from "../../kernel/nft.ts";
import { IPVS_CLEANUP } from "../ipvs/node/cleanup.ts";
import { NFTABLES_CLEANUP } from "../nftables/node/cleanup.ts";
import {
  cleanupIptables,
  cleanupTargets,
  IPTABLES_CLEANUP,
  USERSPACE_CLEANUP,
} from "./iptables_leftovers.ts";

const CLEANUPS: readonly ModeCleanup[] = [
  IPTABLES_CLEANUP,
  IPVS_CLEANUP,
  NFTABLES_CLEANUP,
  USERSPACE_CLEANUP,
];

/** Removes leftovers of these modes, as far as possible, and reports the removals. A second run finds nothing. */
export async function removeLeftovers(
  modes: readonly CleanupMode[],
  context: CleanupContext,
): Promise<LeftoverReport> {
  const { of } = context;
  const wanted = CLEANUPS.filter(({ mode, distinct }) =>
    modes.includes(mode) && (of === undefined || distinct.includes(of))
  );
  const reports = [await removeChains(wanted.filter(({ chains }) => chains !== undefined), context)];
  for (const { removeOthers } of wanted) {
    if (removeOthers !== undefined) reports.push(await removeOthers(context));
  }
  return {
    removed: reports.flatMap(({ removed }) => removed),
    kept: reports.flatMap(({ kept }) => kept),
    failed: reports.flatMap(({ failed }) => failed),
  };
}

/** The modes among these in which kproxy and kube-proxy use the same names: the owner of leftovers is unknown. */
export function indistinctModes(modes: readonly CleanupMode[]): readonly CleanupMode[] {
  return CLEANUPS.filter(({ mode, distinct }) => modes.includes(mode) && distinct.length === 0)
    .map(({ mode }) => mode);
}

async function removeChains(
  modes: readonly ModeCleanup[],
  { exec, families, dryRun }: CleanupContext,
): Promise<LeftoverReport> {
  if (modes.length === 0) return { removed: [], kept: [], failed: [] };
  return await cleanupIptables(await cleanupTargets(exec, families), { dryRun, modes, nft: new Nft(exec) });
}
