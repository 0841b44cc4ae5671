/**
 * Reads the little that a full sync needs to know out of what iptables-save printed.
 *
 * @module
 */
import { unreadableTables } from "../../../netfilter/iptables_save.ts";
import type { ObservedTables } from "../plan/ruleset.ts";

const COLON = 58, STAR = 42, MINUS = 45;

/**
 * Chains of filter and nat, and the rules of the built-in ones, from the text of one or more iptables-save runs. Other
 * tables are passed over. A table that is not there is empty: iptables creates it with its built-in chains when it is first written.
 */
export function observeTables(saveText: string): ObservedTables {
  const chains = { filter: new Set<string>(), nat: new Set<string>() };
  const builtinRules = { filter: new Map<string, string[]>(), nat: new Map<string, string[]>() };
  let table: "filter" | "nat" | null = null;
  for (let start = 0; start < saveText.length;) {
    const newline = saveText.indexOf("\n", start);
    const end = newline < 0 ? saveText.length : newline;
    const first = saveText.charCodeAt(start);
    if (first === STAR) {
      const name = saveText.slice(start + 1, end).trim();
      table = name === "filter" || name === "nat" ? name : null;
    } else if (table !== null && first === COLON) {
      const blank = saveText.indexOf(" ", start);
      const name = saveText.slice(start + 1, blank);
      chains[table].add(name);
      // Chains of users have no policy.
      if (saveText.charCodeAt(blank + 1) !== MINUS) builtinRules[table].set(name, []);
    } else if (table !== null && first === MINUS) {
      const line = saveText.slice(start + 3, end);
      const [chain] = line.split(" ", 1) as [string];
      builtinRules[table].get(chain)?.push(line.slice(chain.length + 1).trimEnd());
    }
    start = end + 1;
  }
  return { chains, builtinRules, unreadable: unreadableTables(saveText) };
}
