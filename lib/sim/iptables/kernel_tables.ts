/**
 * The tables of a kernel after iptables text was restored into empty ones.
 *
 * @module
 */
import { type IptablesRuleset, parseIptablesSave, type SavedChain } from "../../netfilter/iptables_save.ts";

const BUILTIN_CHAINS: Readonly<Record<"filter" | "nat", readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/** `TABLE CHAIN` → rules of a built-in chain, in kernel order. */
export type BuiltinRules = ReadonlyMap<string, readonly string[]>;

/** What the node's own firewall does with what nobody accepted. */
export interface FilterPolicies {
  readonly INPUT: "ACCEPT" | "DROP";
  readonly FORWARD: "ACCEPT" | "DROP";
}

/** Those of a kernel that nobody has configured. */
const OPEN_POLICIES: FilterPolicies = { INPUT: "ACCEPT", FORWARD: "ACCEPT" };

/** Each jump is inserted at the top, so the last one is met first. */
export function builtinRules(
  jumps: readonly { readonly table: string; readonly chain: string; readonly args: string }[],
): BuiltinRules {
  const builtin = new Map<string, string[]>();
  for (const jump of jumps) {
    const key = `${jump.table} ${jump.chain}`;
    builtin.set(key, [jump.args, ...builtin.get(key) ?? []]);
  }
  return builtin;
}

/** @param restore text of own chains, of tables filter and nat */
export function kernelTables(
  restore: string,
  builtin: BuiltinRules,
  policies: FilterPolicies = OPEN_POLICIES,
): IptablesRuleset {
  const written = parseIptablesSave(restore);
  return new Map((["filter", "nat"] as const).map((table) => {
    const chains = new Map<string, SavedChain>(written.get(table));
    for (const chain of BUILTIN_CHAINS[table]) {
      const policy = table === "filter" && chain !== "OUTPUT"
        ? policies[chain as keyof FilterPolicies]
        : "ACCEPT";
      chains.set(chain, { policy, packets: 0, bytes: 0, rules: builtin.get(`${table} ${chain}`) ?? [] });
    }
    return [table, chains];
  }));
}
