/**
 * Asks iptables for single chains and rules, where it cannot read a whole table: rules that somebody added with nft, and for which it
 * has no words, keep it from that, but not from finding these.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { ListedChains } from "../netfilter/iptables_chains.ts";
import type { Iptables } from "./iptables.ts";
import { isLockBusy } from "./iptables_lock.ts";

/** iptables' status for rules that it cannot read. */
const UNREADABLE_STATUS = 3;

type Table = "filter" | "nat";

/** True if the kernel has what the line lists (`-S CHAIN`) or checks (`-C CHAIN RULE`). Throws as {@linkcode listChains} does, and if nobody can tell. */
export async function holdsLine(iptables: Iptables, table: Table, line: string): Promise<boolean> {
  return await ask(iptables, table, line) !== null;
}

/**
 * The rules of chains, each without `-A CHAIN `, in as few runs as it takes; null for a chain that is not there, or holds rules that
 * iptables has no words for: nobody can tell these apart.
 *
 * @param chains each once
 * @throws {ExecError} if nobody can tell anything: the lock was held all the time, the program was killed or is missing
 */
export async function listChains(
  iptables: Iptables,
  table: Table,
  chains: readonly string[],
): Promise<ReadonlyMap<string, readonly string[] | null>> {
  const text = await ask(iptables, table, chains.map((chain) => `-S ${chain}\n`).join("").trimEnd(), "any");
  if (text !== null) {
    const listed = new ListedChains(text);
    return new Map(chains.map((chain) => [chain, listed.next(chain)]));
  }
  if (chains.length <= 1) return new Map(chains.map((chain) => [chain, null]));
  const middle = chains.length >> 1;
  return new Map([
    ...await listChains(iptables, table, chains.slice(0, middle)),
    ...await listChains(iptables, table, chains.slice(middle)),
  ]);
}

/** True if the failure says neither that something is missing nor that it cannot be read. */
export function tellsNothing(error: unknown): boolean {
  return !(error instanceof ExecError) || error.isMissing() || error.isInconclusive() || isLockBusy(error);
}

/**
 * What iptables prints of the line; null if the kernel does not have what it names.
 *
 * @param unreadable `any`: null also if it cannot be read
 */
async function ask(
  iptables: Iptables,
  table: Table,
  line: string,
  unreadable?: "any",
): Promise<string | null> {
  try {
    return await iptables.restore(`*${table}\n${line}\nCOMMIT\n`, { counters: false });
  } catch (error) {
    if (tellsNothing(error) || !(error instanceof ExecError)) throw error;
    if (unreadable === "any" || error.code !== UNREADABLE_STATUS) return null;
    const problem =
      `iptables cannot tell whether table ${table} has "${line}", because of rules that nft added to it; ` +
      `put them into a table of their own: ${error.stderr}`;
    throw new ExecError(error.argv, error.code, problem, { cause: error });
  }
}
