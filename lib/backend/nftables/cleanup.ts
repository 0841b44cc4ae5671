/**
 * What nftables mode leaves behind: its tables in each IP family, which go as a whole.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import { Nft, type NftFamily, nftFamily } from "../../kernel/nft.ts";
import { isWithoutNftables, nftFailureKind } from "../../kernel/nft_failure.ts";
import type { CleanupContext, Leftover, LeftoverFailure, LeftoverReport, ModeCleanup } from "../cleanup.ts";

/** Tables of kube-proxy and of kproxy, which builds the last one while a layout changes. */
const TABLE_NAMES: readonly string[] = ["kube-proxy", "kproxy", "kproxy-next"];

export const NFTABLES_CLEANUP: ModeCleanup = { mode: "nftables", removeOthers: removeTables };

async function removeTables({ exec, families, dryRun }: CleanupContext): Promise<LeftoverReport> {
  const nft = new Nft(exec);
  const removed: Leftover[] = [];
  const failed: LeftoverFailure[] = [];
  const report = { removed, kept: [], failed };
  for (const family of families.map(nftFamily)) {
    let place = `nft ${family}`;
    try {
      for (const name of await tablesHere(nft, family)) {
        place = `nft ${family} ${name}`;
        if (!dryRun) await nft.deleteTable(family, name);
        removed.push({ place: "nft", command: `delete table ${family} ${name}`, kind: "tables of nft" });
      }
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      if (error.isMissing() || isWithoutNftables(error)) return report;
      failed.push({ place, error });
      // What keeps us from looking at one table keeps us from looking at all of them.
      if (nftFailureKind(error) !== "rejected") return report;
    }
  }
  return report;
}

/** Asks by name: a list would read everybody's tables. Most nodes have none of ours, and one look is enough to tell. */
async function tablesHere(nft: Nft, family: NftFamily): Promise<readonly string[]> {
  if (await nft.hasNone(family, { tables: TABLE_NAMES })) return [];
  const here: string[] = [];
  for (const name of TABLE_NAMES) {
    if (!await nft.hasNone(family, { tables: [name] })) here.push(name);
  }
  return here;
}
