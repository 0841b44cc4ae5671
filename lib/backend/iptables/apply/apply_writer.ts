/**
 * Writes operations. Chains that nothing uses any more are deleted in the transaction that removed the last jump to them; if one of them
 * stays because others use it, everything else goes in.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { failedLine } from "../../../kernel/restore_failure.ts";
import { renderTransaction } from "../plan/render.ts";
import type { Operations, Transaction } from "../plan/ruleset.ts";

/** What was written. */
export interface Written {
  /** Programs started. */
  readonly commands: number;
  readonly bytes: number;
  /** Chains that were flushed but are not deleted. */
  readonly flushed: readonly string[];
}

const DELETION = "-X ";

/**
 * Writes all transactions, in order, with one process unless a deletion is refused.
 *
 * @throws {ExecError} if something else than a deletion is refused, or if nobody knows what
 */
export async function writeOperations(iptables: Iptables, { transactions }: Operations): Promise<Written> {
  let bytes = 0;
  const restore = async (some: readonly Transaction[]): Promise<void> => {
    // In pieces: 10,000 Services are 30 MB of text, and the program starts with the first transaction at once.
    const pieces = function* (): Iterable<string> {
      bytes = 0;
      for (const transaction of some) {
        const piece = renderTransaction(transaction);
        bytes += piece.length;
        yield piece;
      }
    };
    await iptables.restore(pieces);
  };
  try {
    await restore(transactions);
    return { commands: 1, bytes, flushed: [] };
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const failedAt = refusedDeletion(transactions, failedLine(error.stderr));
    if (failedAt === null) throw error;
    // Those before it are in.
    const rest = transactions.slice(failedAt);
    await restore(rest.map(withoutDeletions));
    return { commands: 2, bytes, flushed: rest.flatMap(deletedChains) };
  }
}

/** The transaction in which a deletion was refused, by the number of the line in the text of all; null: it was no deletion. */
function refusedDeletion(transactions: readonly Transaction[], line: number | null): number | null {
  if (line === null) return null;
  let before = 0;
  for (const [index, { lines }] of transactions.entries()) {
    // The table's name comes first, COMMIT last.
    if (line <= before + lines.length + 2) {
      return lines[line - before - 2]?.startsWith(DELETION) === true ? index : null;
    }
    before += lines.length + 2;
  }
  return null;
}

function withoutDeletions({ table, lines }: Transaction): Transaction {
  return { table, lines: lines.filter((line) => !line.startsWith(DELETION)) };
}

function deletedChains({ lines }: Transaction): string[] {
  return lines.filter((line) => line.startsWith(DELETION)).map((line) => line.slice(DELETION.length));
}
