/**
 * Chains of iptables as lines: sorted out of a table's text, asked for in a listing, and held against what must be in them.
 *
 * @module
 */
import { canonicalRuleText, readableRuleText } from "./canonical_iptables_rule.ts";
import { type JumpRule, jumpsByChain, type Table } from "./iptables_jumps.ts";

/** Chain → its `-A` lines, in the order given. */
export function groupByChain(lines: Iterable<string>): Map<string, string[]> {
  const bodies = new Map<string, string[]>();
  for (const line of lines) {
    const chain = chainOf(line);
    const body = bodies.get(chain);
    if (body === undefined) bodies.set(chain, [line]);
    else body.push(line);
  }
  return bodies;
}

/** The chain of an `-A CHAIN …` line. */
export function chainOf(line: string): string {
  return line.slice(3, line.indexOf(" ", 3));
}

/** What an `-A CHAIN …` line says after the chain. */
export function ruleOf(line: string, chain: string): string {
  return line.slice(4 + chain.length);
}

/** The canonical rules of each body. */
export function* bodyRules(
  bodies: Iterable<readonly [chain: string, lines: readonly string[]]>,
): Generator<readonly [chain: string, rules: readonly string[]]> {
  for (const [chain, lines] of bodies) {
    yield [chain, lines.map((line) => canonicalRuleText(ruleOf(line, chain)))];
  }
}

/** The canonical rules of each chain of a table that jumps are in. */
export function* jumpRules(
  jumps: readonly JumpRule[],
  table: Table,
): Generator<readonly [chain: string, rules: readonly string[]]> {
  for (const [chain, ofChain] of jumpsByChain(jumps, table)) {
    yield [chain, ofChain.map(({ args }) => canonicalRuleText(args))];
  }
}

/** A text for iptables-restore that lists chains and changes nothing. */
export function listingText(
  tables: Iterable<readonly [table: string, chains: Iterable<string>]>,
): string {
  const lines: string[] = [];
  for (const [table, chains] of tables) {
    lines.push(`*${table}`);
    for (const chain of chains) lines.push(`-S ${chain}`);
    lines.push("COMMIT");
  }
  return lines.join("\n") + "\n";
}

/**
 * True if all of these rules are among those that were found, in any order. One that cannot be read is none of ours.
 *
 * @param found as iptables prints them
 * @param rules canonical
 */
export function holdsAmongOthers(found: readonly string[], rules: readonly string[]): boolean {
  return new Set(rules).isSubsetOf(new Set(found.map(readableRuleText)));
}
