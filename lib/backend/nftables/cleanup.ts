/**
 * What nftables mode leaves behind: its tables in each IP family, which go as a whole.
 *
 * @module
 */
import { CLEANUP_PROXIES, type CleanupProxy } from "../../config/types.ts";
import { ExecError } from "../../errors.ts";
import { Nft, type NftFamily, nftFamily } from "../../kernel/nft.ts";
import { isWithoutNftables, nftFailureKind } from "../../kernel/nft_failure.ts";
import type { CleanupContext, Leftover, LeftoverFailure, LeftoverReport, ModeCleanup } from "../cleanup.ts";

/** Ours are the one that serves, and the one that is built while a layout changes. */
const TABLE_NAMES: Readonly<Record<CleanupProxy, readonly string[]>> = {
  "kube-proxy": ["kube-proxy"],
  kproxy: ["kproxy", "kproxy-next"],
};

export const NFTABLES_CLEANUP: ModeCleanup = {
  mode: "nftables",
  tellsApart: CLEANUP_PROXIES,
  removeOthers: removeTables,
};

async function removeTables({ exec, families, dryRun, of }: CleanupContext): Promise<LeftoverReport> {
  const names = of === undefined ? Object.values(TABLE_NAMES).flat() : TABLE_NAMES[of];
  const nft = new Nft(exec);
  const removed: Leftover[] = [];
  const failed: LeftoverFailure[] = [];
  let isOver = false;
  const attempt = async <T>(place: string, work: () => Promise<T>): Promise<T | null> => {
    if (isOver) return null;
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const isAbsent = error.isMissing() || isWithoutNftables(error);
      if (!isAbsent) failed.push({ place, error });
      // What keeps us from looking at one table keeps us from looking at all of them.
      isOver = isAbsent || nftFailureKind(error) !== "rejected";
      return null;
    }
  };
  for (const family of families.map(nftFamily)) {
    for (const name of await attempt(`nft ${family}`, () => tablesHere(nft, family, names)) ?? []) {
      await attempt(`nft ${family} ${name}`, async () => {
        if (!dryRun) await nft.deleteTable(family, name);
        removed.push({ place: "nft", command: `delete table ${family} ${name}`, kind: "tables of nft" });
      });
    }
  }
  return { removed, kept: [], failed };
}

/** Asks by name: a list would read everybody's tables. Most nodes have none of ours, and one look is enough to tell. */
async function tablesHere(nft: Nft, family: NftFamily, names: readonly string[]): Promise<readonly string[]> {
  if (await nft.hasNone(family, { tables: names })) return [];
  const here: string[] = [];
  for (const name of names) {
    if (!await nft.hasNone(family, { tables: [name] })) here.push(name);
  }
  return here;
}
