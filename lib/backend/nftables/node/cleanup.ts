/**
 * What nftables mode leaves behind: its tables in each IP family, which go as a whole.
 *
 * @module
 */
import { CLEANUP_PROXIES, type CleanupProxy } from "../../../config/types.ts";
import { ExecError } from "../../../errors.ts";
import { isWithoutNftables, Nft, nftFailureKind } from "../../../kernel/nft.ts";
import { parseTable } from "../../../netfilter/nft_listing.ts";
import { type NftFamily, nftFamily } from "../../../netfilter/nft_words.ts";
import { NEXT_TABLE_NAME, TABLE_NAME } from "../plan/chains.ts";
import type {
  CleanupContext,
  Leftover,
  LeftoverFailure,
  LeftoverReport,
  ModeCleanup,
} from "../../node/cleanup.ts";

/** Ours are the one that serves, and the one that is built while a layout changes. */
const TABLE_NAMES: Readonly<Record<CleanupProxy, readonly string[]>> = {
  "kube-proxy": ["kube-proxy"],
  kproxy: [TABLE_NAME, NEXT_TABLE_NAME],
};

export const NFTABLES_CLEANUP: ModeCleanup = {
  mode: "nftables",
  distinct: CLEANUP_PROXIES,
  removeOthers: removeTables,
};

async function removeTables({ exec, families, dryRun, of }: CleanupContext): Promise<LeftoverReport> {
  const names = of === undefined ? Object.values(TABLE_NAMES).flat() : TABLE_NAMES[of];
  const nft = new Nft(exec);
  const removed: Leftover[] = [];
  const failed: LeftoverFailure[] = [];
  /** @returns false if what failed keeps us from all tables */
  const attempt = async (place: string, work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const isAbsent = error.isMissing() || isWithoutNftables(error);
      if (!isAbsent) failed.push({ place, error });
      return !isAbsent && nftFailureKind(error) === "rejected";
    }
  };
  const remove = async (family: NftFamily, name: string): Promise<void> => {
    const problem = await ownerProblem(nft, family, name);
    if (problem === null) return;
    if (problem !== "") {
      failed.push({ place: `nft ${family} ${name}`, error: new Error(problem) });
      return;
    }
    if (!dryRun) await nft.deleteTable(family, name);
    removed.push({ place: "nft", command: `delete table ${family} ${name}`, kind: "tables of nft" });
  };
  for (const family of families.map(nftFamily)) {
    // Most nodes have none of them, and one dry run is enough to see it. What fails here fails for each of them, too.
    if (await nft.hasNone(family, { tables: names }).catch(() => false)) continue;
    for (const name of names) {
      if (!await attempt(`nft ${family} ${name}`, () => remove(family, name))) {
        return { removed, kept: [], failed };
      }
    }
  }
  return { removed, kept: [], failed };
}

/**
 * Asks by name: a list would read all tables of the node.
 *
 * @returns why only another process may remove the table; `""` if this one may; null: it is not there
 */
async function ownerProblem(nft: Nft, family: NftFamily, name: string): Promise<string | null> {
  try {
    return await nft.hasNone(family, { tables: [name] }) ? null : "";
  } catch (error) {
    if (!(error instanceof ExecError) || nftFailureKind(error) !== "permission") throw error;
    const problem = parseTable(await nft.listTable(family, name) ?? "").ownerProblem;
    if (problem === null) throw error;
    return problem;
  }
}
