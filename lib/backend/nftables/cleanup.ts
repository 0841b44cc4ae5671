/**
 * What nftables mode leaves behind: one table per IP family, which goes as a whole.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import { deleteNftTable, listNftTables, type NftTable } from "../../kernel/nft_tables.ts";
import type { CleanupContext, Leftover, LeftoverFailure, LeftoverReport, ModeCleanup } from "../cleanup.ts";

/** Tables of kube-proxy and of kproxy. */
const TABLE_NAMES: readonly string[] = ["kube-proxy", "kproxy"];
const FAMILY_WORDS = { IPv4: "ip", IPv6: "ip6" } as const;

export const NFTABLES_CLEANUP: ModeCleanup = { mode: "nftables", removeOthers: removeTables };

async function removeTables({ exec, families, dryRun }: CleanupContext): Promise<LeftoverReport> {
  const removed: Leftover[] = [];
  const failed: LeftoverFailure[] = [];
  const words: readonly string[] = families.map((family) => FAMILY_WORDS[family]);
  const isOurs = ({ family, name }: NftTable): boolean =>
    words.includes(family) && TABLE_NAMES.includes(name);
  let place = "nft";
  try {
    for (const table of (await listNftTables(exec)).filter(isOurs)) {
      place = `nft ${table.family} ${table.name}`;
      if (!dryRun) await deleteNftTable(exec, table);
      removed.push({
        place: "nft",
        command: `delete table ${table.family} ${table.name}`,
        kind: "tables of nft",
      });
    }
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    failed.push({ place, error });
  }
  return { removed, kept: [], failed };
}
