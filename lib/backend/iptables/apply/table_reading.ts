/**
 * Reads the tables of one family: as a whole, or single chains by their names, which is cheap on a node with many rules, and works where
 * iptables cannot read a whole table.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { findByName, listChains } from "../../../kernel/iptables_by_name.ts";
import { isLockBusy } from "../../../kernel/tool_errors.ts";
import { type JumpRule, jumpsByChain, type PerTable, type Table } from "../../../netfilter/iptables_jumps.ts";
import { parseIptablesListing, type SavedTable, unreadableTables } from "../../../netfilter/iptables_save.ts";
import { CANARY_CHAIN } from "../plan/chains.ts";
import type { HeldTables } from "../store/full_sync.ts";

/** Chains and jumps of a mode in every state of the cluster. */
export interface OwnRules {
  /** Its chains without those of Services. */
  readonly chains: PerTable<readonly string[]>;
  readonly jumps: readonly JumpRule[];
}

const TABLES: readonly Table[] = ["nat", "filter"];

/** Options of {@linkcode readTables}. */
export interface ReadOptions {
  /** Aborts the reading. */
  readonly signal?: AbortSignal;
  /** Chains of Services that are looked for by name where table nat cannot be read as a whole. */
  readonly serviceChains?: () => Iterable<string>;
}

/**
 * Reads all tables.
 *
 * @throws {ExecError} if they cannot be read, or if it is unknown whether a jump is there
 * @throws the reason of `signal`
 */
export async function readTables(
  iptables: Iptables,
  { chains, jumps }: OwnRules,
  { signal, serviceChains = () => [] }: ReadOptions = {},
): Promise<HeldTables> {
  const text = await iptables.saveReadable(signal);
  const unreadable = unreadableTables(text);
  const tables = new Map<string, SavedTable>(parseIptablesListing(text).tables);
  const jumpsOnly: Record<Table, ReadonlySet<string>> = { nat: new Set(), filter: new Set() };
  for (const table of TABLES) {
    if (!unreadable.has(table)) continue;
    const found = await findByName(iptables, table, {
      chains: table === "nat" ? [...chains.nat, ...serviceChains()] : chains.filter,
      jumps: jumpsByChain(jumps, table),
    });
    tables.set(table, found.chains);
    jumpsOnly[table] = found.jumpsOnly;
  }
  return { tables, unreadable, jumpsOnly };
}

/**
 * Reads the chains that packets cannot do without, in one start of a program.
 *
 * @param canaries tables in which the canary is looked for
 * @returns `incomplete` if a chain is not there, or cannot be listed; null if another program holds a lock, which says nothing of our rules
 * @throws {ExecError} if there is no such program
 */
export async function readOwnChains(
  iptables: Iptables,
  { chains, jumps }: OwnRules,
  canaries: readonly string[],
): Promise<HeldTables | "incomplete" | null> {
  const mangle: (readonly [string, readonly string[]])[] = canaries.includes("mangle")
    ? [["mangle", [CANARY_CHAIN]]]
    : [];
  const asked = TABLES.map((table): readonly [string, readonly string[]] => [
    table,
    [...chains[table], ...jumpsByChain(jumps, table).keys()],
  ]);
  try {
    return { tables: await listChains(iptables, [...mangle, ...asked]), unreadable: new Set() };
  } catch (error) {
    if (!(error instanceof ExecError) || error.isMissing()) throw error;
    return isLockBusy(error) ? null : "incomplete";
  }
}
