/**
 * Looks for what is ours by name, where iptables cannot read a whole table: rules that somebody added with nft, and for which it has no
 * words, keep it from that, but not from finding one chain or one rule.
 *
 * @module
 */
import type { Iptables } from "../../../kernel/iptables.ts";
import { holdsLine, tellsNothing } from "../../../kernel/iptables_by_name.ts";
import type { PerTable, Table } from "../../../netfilter/iptables_jumps.ts";
import { PrintedReader, type PrintedRules, type PrintedTable } from "../../../netfilter/printed_chains.ts";
import { ENSURED_CHAINS } from "../plan/base_rules.ts";
import { CANARY_CHAIN, type Sentinels } from "../diff/observe_canary.ts";
import { lookText } from "../diff/observe_damage.ts";
import type { CheckTurn } from "../diff/observe_turns.ts";
import type { CommittedRules } from "../diff/committed.ts";
import type { BaseRules, ObservedTables } from "../plan/ruleset.ts";

/**
 * What was observed, with the shared chains and the jumps to them that are in tables which could not be read. Chains of Services that
 * nobody wants any more stay unseen there.
 *
 * @throws {ExecError} if nobody can tell whether a jump is there
 */
export async function observeByName(
  iptables: Iptables,
  base: Pick<BaseRules, "chains" | "jumps">,
  observed: ObservedTables,
): Promise<ObservedTables> {
  const chains = { ...observed.chains };
  const builtinRules = { ...observed.builtinRules };
  for (const table of ["nat", "filter"] as const) {
    if (!observed.unreadable.has(table)) continue;
    const found = new Set<string>();
    for (const chain of new Set([...base.chains[table], ...ENSURED_CHAINS[table]])) {
      if (await holdsLine(iptables, table, `-S ${chain}`)) found.add(chain);
    }
    const jumps = new Map<string, string[]>();
    for (const { table: of, chain, args } of base.jumps) {
      if (of !== table || !await holdsLine(iptables, table, `-C ${chain} ${args}`)) continue;
      jumps.set(chain, [...jumps.get(chain) ?? [], args]);
    }
    chains[table] = found;
    builtinRules[table] = jumps;
  }
  return { chains, builtinRules, unreadable: observed.unreadable };
}

/** What a look at tables is about, of which some cannot be read. */
export interface LookByName {
  readonly wanted: Sentinels;
  readonly turn: CheckTurn;
  readonly tables: readonly PrintedTable[];
  readonly unreadable: ReadonlySet<string>;
}

/** What such a look found: table mangle, where that is unreadable, is left out. */
export interface FoundByName {
  readonly printed: PrintedRules;
  /** Without the jumps, which are there. */
  readonly wanted: Sentinels;
  readonly tables: readonly PrintedTable[];
}

/**
 * Lists our own chains, and checks the jumps to them.
 *
 * @returns null if one of them is not there
 * @throws {ExecError} if nobody can tell
 */
export async function lookByName(
  iptables: Iptables,
  { wanted, turn, tables, unreadable }: LookByName,
  committed: CommittedRules,
): Promise<FoundByName | null> {
  const { jumps } = committed.base;
  const readable = tables.filter((table) => table !== "mangle" || !unreadable.has(table));
  const own: PerTable<Map<string, readonly string[]>> = { filter: new Map(), nat: new Map() };
  for (const table of ["nat", "filter"] as const) {
    const ofTable = jumps.filter((jump) => jump.table === table);
    const builtin = new Set(ofTable.map(({ chain }) => chain));
    for (const [chain, rules] of wanted.get(table) ?? []) {
      if (!builtin.has(chain)) own[table].set(chain, rules);
    }
    for (const { chain, args } of ofTable) {
      if (!await holdsLine(iptables, table, `-C ${chain} ${args}`)) return null;
    }
  }
  const ours: Sentinels = new Map(Object.entries(own) as [Table, Map<string, readonly string[]>][]);
  try {
    const reader = new PrintedReader(ours, { tables: readable, first: CANARY_CHAIN });
    await iptables.listInto(reader, lookText(ours, turn, committed, readable));
    return { printed: reader.take(), wanted: ours, tables: readable };
  } catch (error) {
    if (tellsNothing(error)) throw error;
    return null;
  }
}
