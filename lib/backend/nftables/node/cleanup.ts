/**
 * Leftovers of nftables mode: its tables in each IP family, which are removed as a whole.
 *
 * @module
 */
import { CLEANUP_PROXIES, type CleanupProxy } from "../../../config/types.ts";
import { ExecError } from "../../../errors.ts";
import { isWithoutNftables, Nft, nftFailureKind } from "../../../kernel/nft.ts";
import { type NftFamily, nftFamily } from "../../../netfilter/nft_words.ts";
import { NEXT_TABLE_NAME, TABLE_NAME } from "../plan/chains.ts";
import type {
  CleanupContext,
  Leftover,
  LeftoverFailure,
  LeftoverReport,
  ModeCleanup,
} from "../../node/cleanup.ts";

/** Names of tables. Ours are the one that serves, and the one that is built while a layout changes. */
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
  let isOver = false;
  const attempt = async <T>(place: string, work: () => Promise<T>): Promise<T | null> => {
    if (isOver) return null;
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const isAbsent = error.isMissing() || isWithoutNftables(error);
      if (!isAbsent) failed.push({ place, error });
      // An obstacle to reading one table is an obstacle to reading all of them.
      isOver = isAbsent || nftFailureKind(error) !== "rejected";
      return null;
    }
  };
  for (const family of families.map(nftFamily)) {
    const onOwned = (name: string, problem: string): void => {
      failed.push({ place: `nft ${family} ${name}`, error: new Error(problem) });
    };
    const look = (): Promise<readonly string[]> => tablesHere(nft, { family, names, onOwned });
    for (const name of await attempt(`nft ${family}`, look) ?? []) {
      await attempt(`nft ${family} ${name}`, async () => {
        if (!dryRun) await nft.deleteTable(family, name);
        removed.push({ place: "nft", command: `delete table ${family} ${name}`, kind: "tables of nft" });
      });
    }
  }
  return { removed, kept: [], failed };
}

/**
 * Asks by name: a list would read all tables of the node. Most nodes have none of ours, which one dry run shows.
 *
 * @param onOwned called for tables that only another process may remove
 */
async function tablesHere(
  nft: Nft,
  { family, names, onOwned }: {
    readonly family: NftFamily;
    readonly names: readonly string[];
    readonly onOwned: (name: string, problem: string) => void;
  },
): Promise<readonly string[]> {
  if (await hasNone(nft, family, names) === true) return [];
  const here: string[] = [];
  for (const name of names) {
    const answer = await hasNone(nft, family, [name]);
    if (answer === false) here.push(name);
    if (!(answer instanceof ExecError)) continue;
    const problem = (await nft.listTable(family, name))?.ownerProblem ?? null;
    if (problem === null) throw answer;
    onOwned(name, problem);
  }
  return here;
}

/** @returns the error if nothing may be done with some of them: the process lacks rights, or another one has claimed them */
async function hasNone(nft: Nft, family: NftFamily, names: readonly string[]): Promise<boolean | ExecError> {
  try {
    return await nft.hasNone(family, { tables: names });
  } catch (error) {
    if (error instanceof ExecError && nftFailureKind(error) === "permission") return error;
    throw error;
  }
}
