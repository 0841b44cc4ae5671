/**
 * What nftables mode leaves behind: its tables in each IP family, which go as a whole.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import { Nft, nftFamily } from "../../kernel/nft.ts";
import { isWithoutNftables, nftFailureKind } from "../../kernel/nft_failure.ts";
import type { CleanupContext, Leftover, LeftoverFailure, LeftoverReport, ModeCleanup } from "../cleanup.ts";

/** Tables of kube-proxy and of kproxy, which builds the last one while a layout changes. */
const TABLE_NAMES: readonly string[] = ["kube-proxy", "kproxy", "kproxy-next"];

export const NFTABLES_CLEANUP: ModeCleanup = { mode: "nftables", removeOthers: removeTables };

/** Asks for each table by its name: a list of all would read every element of everybody's tables. */
async function removeTables({ exec, families, dryRun }: CleanupContext): Promise<LeftoverReport> {
  const nft = new Nft(exec);
  const removed: Leftover[] = [];
  const failed: LeftoverFailure[] = [];
  for (const family of families.map(nftFamily)) {
    for (const name of TABLE_NAMES) {
      try {
        if (!await nft.hasTable(family, name)) continue;
        if (!dryRun) await nft.deleteTable(family, name);
        removed.push({ place: "nft", command: `delete table ${family} ${name}`, kind: "tables of nft" });
      } catch (error) {
        if (!(error instanceof ExecError)) throw error;
        if (error.isMissing() || isWithoutNftables(error)) return { removed, kept: [], failed };
        failed.push({ place: `nft ${family} ${name}`, error });
        // What keeps us from looking at one table keeps us from looking at all of them.
        if (nftFailureKind(error) !== "rejected") return { removed, kept: [], failed };
      }
    }
  }
  return { removed, kept: [], failed };
}
