/**
 * Reads our tables at the beginning of a full sync.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import type { ListedTable } from "../../../netfilter/nft_listing.ts";
import type { NftFamily } from "../../../netfilter/nft_words.ts";
import { NEXT_TABLE_NAME, TABLE_NAME } from "../plan/chains.ts";

/** Our tables as listed; null: there is no such table. */
export interface FoundTables {
  readonly own: ListedTable | null;
  /** The table that is built beside ours while a layout changes, or where another process owns ours. */
  readonly next: ListedTable | null;
  /** Programs started, if there is nothing unusual. */
  readonly commands: number;
}

/** How often a list is read that looks as if another process' dry run had made it wrong. */
const MAX_READS = 3;

/**
 * @param entries about how many elements and rules there should be
 * @throws {ExecError} if nft cannot read
 */
export async function readTables(nft: Nft, family: NftFamily, entries: number): Promise<FoundTables> {
  // Nearly every first sync finds none, which one dry run for both shows.
  if (await isBlank(nft, family)) return { own: null, next: null, commands: 1 };
  // Side by side; the first one's failure is reported.
  const [list, look] = await Promise.allSettled([
    readTable(nft, family, TABLE_NAME, entries),
    nft.hasTable(family, NEXT_TABLE_NAME),
  ]);
  if (list.status === "rejected") throw list.reason;
  if (look.status === "rejected") throw look.reason;
  return {
    own: list.value,
    next: look.value ? await readTable(nft, family, NEXT_TABLE_NAME, entries) : null,
    commands: 3,
  };
}

/** True if neither table is there; false, too, where that is unknown: then reading them says why. */
async function isBlank(nft: Nft, family: NftFamily): Promise<boolean> {
  try {
    return await nft.hasNone(family, { tables: [TABLE_NAME, NEXT_TABLE_NAME] });
  } catch (error) {
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** Null if there is no such table. */
export async function readTable(
  nft: Nft,
  family: NftFamily,
  name: string,
  entries: number,
): Promise<ListedTable | null> {
  let before: string | null = null;
  for (let reads = 1;; reads++) {
    const listed = await nft.listTable(family, name, entries);
    if (listed === null || !isDoubtful(listed) || reads === MAX_READS) return listed;
    // What is damaged is so twice.
    const handles = JSON.stringify([...listed.handles]);
    if (handles === before) return listed;
    before = handles;
  }
}

/**
 * True if rules may have been left out or listed twice: Linux 6.18 does so, without a word, while another process tries rules or chains
 * (`nft -c`). Every chain of ours has rules, and no two rules of a table have one handle.
 */
function isDoubtful({ handles }: ListedTable): boolean {
  const all = [...handles.values()];
  return all.some((ofChain) => ofChain.length === 0) || new Set(all.flat()).size < all.flat().length;
}
