/**
 * Reads the tables of one family: as a whole, or single chains by their names, which is cheap on a node with many rules, and works where
 * iptables cannot read a whole table.
 *
 * @module
 */
import type { Iptables } from "../../../kernel/iptables.ts";
import { findByName, listChains } from "../../../kernel/iptables_by_name.ts";
import { jumpsByChain, type Table } from "../../../netfilter/iptables_jumps.ts";
import { parseIptablesListing, type SavedTable, unreadableTables } from "../../../netfilter/iptables_save.ts";
import { ENSURED_CHAINS, JUMP_RULES } from "../plan/base_rules.ts";
import { CANARY_CHAIN, FORWARD_CHAIN, MARK_MASQ_CHAIN, POSTROUTING_CHAIN } from "../plan/chains.ts";
import { DISPATCH_CHAINS } from "../store/dispatch.ts";
import type { HeldTables } from "../store/full_sync.ts";

/** Our chains without those of Services. */
const OWN_CHAINS: Readonly<Record<Table, readonly string[]>> = {
  nat: [...DISPATCH_CHAINS.nat, POSTROUTING_CHAIN, MARK_MASQ_CHAIN],
  filter: [...DISPATCH_CHAINS.filter, FORWARD_CHAIN, ...ENSURED_CHAINS.filter],
};

/** How {@linkcode readTables} goes about it. */
export interface ReadOptions {
  /** Ends it. */
  readonly signal?: AbortSignal;
  /** Chains of Services that are looked for by name where table nat cannot be read as a whole. */
  readonly serviceChains?: () => Iterable<string>;
}

/**
 * All tables.
 *
 * @throws {ExecError} if they cannot be read, or if it is unknown whether a jump is there
 * @throws the reason of `signal`
 */
export async function readTables(
  iptables: Iptables,
  { signal, serviceChains = () => [] }: ReadOptions = {},
): Promise<HeldTables> {
  const text = await iptables.saveReadable(signal);
  const unreadable = unreadableTables(text);
  const tables = new Map<string, SavedTable>(parseIptablesListing(text).tables);
  for (const table of ["nat", "filter"] as const) {
    if (!unreadable.has(table)) continue;
    const own = [CANARY_CHAIN, ...OWN_CHAINS[table]];
    const found = await findByName(iptables, table, {
      chains: table === "nat" ? [...own, ...serviceChains()] : own,
      jumps: jumpsByChain(JUMP_RULES, table),
    });
    tables.set(table, found.chains);
  }
  return { tables, unreadable };
}

/**
 * The chains that packets cannot do without, in one start of a program.
 *
 * @param canaries tables in which the canary is looked for
 * @throws {ExecError} also if a chain is not there
 */
export async function readOwnChains(iptables: Iptables, canaries: readonly string[]): Promise<HeldTables> {
  const asked = canaries.map((table): readonly [string, readonly string[]] => [table, [
    CANARY_CHAIN,
    ...table === "nat" || table === "filter"
      ? [...OWN_CHAINS[table], ...jumpsByChain(JUMP_RULES, table).keys()]
      : [],
  ]]);
  return { tables: await listChains(iptables, asked), unreadable: new Set() };
}
