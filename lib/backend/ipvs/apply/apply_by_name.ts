/**
 * Looks for our chains and jumps by name, where iptables cannot read a whole table because of rules that somebody added with nft.
 *
 * @module
 */
import type { Iptables } from "../../../kernel/iptables.ts";
import { holdsLine, listChains } from "../../../kernel/iptables_by_name.ts";
import { chainHolds } from "../../../netfilter/iptables_chains.ts";
import { jumpsByChain, type Table } from "../../../netfilter/iptables_jumps.ts";
import type { SavedChain, SavedTable } from "../../../netfilter/iptables_save.ts";
import { CHAINS, JUMP_RULES } from "../plan/base_rules.ts";
import type { RulesProbe } from "../diff/observe_damage.ts";

/** One table, as far as it could be seen. */
export interface TableByName {
  /** Our chains, and those of the kernel with jumps to ours; one of ours that nobody can list is left out. */
  readonly chains: SavedTable;
  /** Chains of the kernel of which only our jumps are known, not in their order and each once. */
  readonly jumpsOnly: ReadonlySet<string>;
}

/** @throws {ExecError} if nobody can tell whether a jump is there */
export async function observeByName(iptables: Iptables, table: Table): Promise<TableByName> {
  const chains = new Map<string, SavedChain>();
  const jumpsOnly = new Set<string>();
  const add = (chain: string, policy: string, rules: readonly string[]): void => {
    chains.set(chain, { policy, packets: 0, bytes: 0, rules });
  };
  const jumps = jumpsByChain(JUMP_RULES, table);
  const listed = await listChains(iptables, table, [...CHAINS[table], ...jumps.keys()]);
  for (const chain of CHAINS[table]) {
    const rules = listed.get(chain) ?? null;
    if (rules !== null) add(chain, "-", rules);
  }
  for (const [chain, wanted] of jumps) {
    let rules = listed.get(chain) ?? null;
    if (rules === null) {
      jumpsOnly.add(chain);
      rules = [];
      for (const { args } of wanted) {
        if (await holdsLine(iptables, table, `-C ${chain} ${args}`)) rules = [...rules, args];
      }
    }
    add(chain, "ACCEPT", rules);
  }
  return { chains, jumpsOnly };
}

/**
 * Chains that are not as they must be, with their tables.
 *
 * @throws {ExecError} if nobody can tell whether a jump is there
 */
export async function damagedByName(iptables: Iptables, { wanted }: RulesProbe): Promise<readonly string[]> {
  const damaged: string[] = [];
  for (const [table, ofTable] of Map.groupBy(wanted, ({ table }) => table)) {
    const listed = await listChains(iptables, table, ofTable.map(({ chain }) => chain));
    for (const { chain, rules, comparison } of ofTable) {
      const found = listed.get(chain) ?? null;
      const holds = found === null
        ? await holdsJumps(iptables, table, chain)
        : chainHolds(found, { rules, comparison });
      if (!holds) damaged.push(`${table} ${chain}`);
    }
  }
  return damaged;
}

/** False for chains of ours. */
async function holdsJumps(iptables: Iptables, table: Table, chain: string): Promise<boolean> {
  const jumps = JUMP_RULES.filter((jump) => jump.table === table && jump.chain === chain);
  for (const { args } of jumps) if (!await holdsLine(iptables, table, `-C ${chain} ${args}`)) return false;
  return jumps.length > 0;
}
