/**
 * The kernel's tables after iptables text was restored into empty ones, on a node of a flow case.
 *
 * @module
 */
import {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
} from "../../lib/netfilter/iptables_save.ts";
import type { FlowOptions } from "./flow_case.ts";

const BUILTIN_CHAINS: Readonly<Record<"filter" | "nat", readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/** `TABLE CHAIN` → rules of a built-in chain, in kernel order. */
export type BuiltinRules = ReadonlyMap<string, readonly string[]>;

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

/** @param restore text of our own chains */
export function kernelTables(restore: string, builtin: BuiltinRules, options: FlowOptions): IptablesRuleset {
  const written = parseIptablesSave(restore);
  return new Map((["filter", "nat"] as const).map((table) => {
    const chains = new Map<string, SavedChain>(written.get(table));
    for (const chain of BUILTIN_CHAINS[table]) {
      const policy = table === "filter" && chain !== "OUTPUT"
        ? options.policies[chain as "INPUT" | "FORWARD"]
        : "ACCEPT";
      chains.set(chain, { policy, packets: 0, bytes: 0, rules: builtin.get(`${table} ${chain}`) ?? [] });
    }
    return [table, chains];
  }));
}
