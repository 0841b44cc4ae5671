/**
 * Writes a transaction. Unused chains are deleted in the block that removes the last jump to them; if one of them
 * stays because others use it, everything else goes in.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { failedLine, failedLines } from "../../../kernel/tool_errors.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { Refusal } from "../../quarantine.ts";
import type { IptablesTransaction } from "../store/transaction.ts";

/** Result of a written transaction. */
export interface Written {
  /** Programs started. */
  readonly commands: number;
  readonly bytes: number;
  /** Chains that were flushed but are not deleted. */
  readonly flushed: readonly string[];
}

const DELETION_REGEXP = /^-X (.*)\n/gm;

/**
 * Writes all blocks, in order, with one process unless a deletion is refused.
 *
 * @param mostChains chains of one block, about
 * @throws {ExecError} if something else than a deletion is refused, or if it is unknown what
 */
export async function writeTransaction(
  iptables: Iptables,
  transaction: IptablesTransaction,
  mostChains: number,
): Promise<Written> {
  if (transaction.isEmpty) return { commands: 0, bytes: 0, flushed: [] };
  let bytes = 0;
  try {
    // In pieces: 10,000 Services are 30 MB of text, and the program starts with the first block at once.
    await iptables.restore(function* () {
      bytes = 0;
      for (const block of transaction.blocks(mostChains)) {
        bytes += block.length;
        yield block;
      }
    });
    return { commands: 1, bytes, flushed: [] };
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const rest = sinceRefusedDeletion(transaction.blocks(mostChains), failedLine(error.stderr));
    if (rest === null) throw error;
    const text = rest.replace(DELETION_REGEXP, "");
    await iptables.restore(text);
    const flushed = Array.from(rest.matchAll(DELETION_REGEXP), ([, chain = ""]) => chain);
    return { commands: 2, bytes: text.length, flushed };
  }
}

/** The blocks from the one whose line deletes a chain: those before it are committed. Null: the line is no deletion. */
function sinceRefusedDeletion(blocks: Iterable<string>, line: number | null): string | null {
  if (line === null) return null;
  let rest: string | null = null;
  let before = 0;
  for (const block of blocks) {
    if (rest !== null) {
      rest += block;
      continue;
    }
    const lines = block.split("\n");
    // The last line is empty.
    if (line < before + lines.length) {
      if (lines[line - before - 1]?.startsWith("-X ") !== true) return null;
      rest = block;
    }
    before += lines.length - 1;
  }
  return rest;
}

/**
 * Deletes chains of table nat, all of them or none.
 *
 * @returns the chains that the program names if it refuses some
 * @throws {ExecError} if it fails and says nothing of a line
 */
export async function deleteChains(
  iptables: Iptables,
  names: readonly string[],
): Promise<Refusal<string> | null> {
  // A chain must be empty; declaring it also makes one that another program deleted, so that it can be deleted.
  const lines = [...names.map(chainLine), ...names.map((name) => `-X ${name}`)];
  try {
    await iptables.restore(tableBlock("nat", lines), { counters: false });
    return null;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const named = failedLines(error.stderr).flatMap((line) => {
      // The first line is `*nat`.
      const item = names[line - 2 - names.length];
      return item === undefined ? [] : [{ item, problem: error.message }];
    });
    if (named.length === 0) throw error;
    return { problem: error.message, named };
  }
}
