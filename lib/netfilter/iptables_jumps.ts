/**
 * The tables and chains of iptables that carry our rules, and our jumps in built-in chains: which are missing, and where they go;
 * chains as lines: grouped from a table's text, listed, and compared with the expected rules.
 *
 * @module
 */
import { canonicalRuleText, readableRuleText } from "./canonical_iptables_rule.ts";

/** The two tables that hold kproxy's rules. */
export type Table = "filter" | "nat";

/** A value per table. */
export type PerTable<T> = Readonly<Record<Table, T>>;

/** A rule in a built-in chain (INPUT, PREROUTING, …) that jumps to one of kproxy's chains. */
export interface JumpRule {
  /** The table of both chains. */
  readonly table: Table;
  /** The built-in chain. */
  readonly chain: string;
  /** The rule after the chain's name, `-j TARGET` included; comments quoted as in restore text. */
  readonly args: string;
  /** The chain that the rule jumps to. */
  readonly target: string;
  /** True: the jump is appended to the chain. Default: inserted at the top. */
  readonly isLast?: boolean;
}

/** A jump with kube-proxy's comment. @param match further conditions, with a blank at their end */
export function jump(table: Table, chain: string, target: string, comment: string, match = ""): JumpRule {
  return { table, chain, target, args: `${match}-m comment --comment "${comment}" -j ${target}` };
}

/** A table's jumps by built-in chain. */
export function jumpsByChain(
  jumps: readonly JumpRule[],
  table: Table,
): ReadonlyMap<string, readonly JumpRule[]> {
  return Map.groupBy(jumps.filter((jump) => jump.table === table), ({ chain }) => chain);
}

/** The line that creates a chain, or flushes it if it exists. */
export function chainLine(chain: string): string {
  return `:${chain} - [0:0]`;
}

/** The lines of one table in iptables-restore, which commits all of them or none. */
export function tableBlock(table: Table | "mangle", lines: readonly string[]): string {
  return [`*${table}`, ...lines, "COMMIT", ""].join("\n");
}

/** Edits that put the jumps of one chain in order. */
export interface JumpEdits {
  /** Rules without the chain's name, each to be deleted once, before the insertions. */
  readonly surplus: readonly string[];
  /** Insertions in this order; `place` is counted from 1, and takes earlier insertions into account. */
  readonly missing: readonly { readonly place: number; readonly args: string }[];
}

/**
 * Puts back the missing jumps, in the order of a first start; those that exist stay where they are.
 * (Inserting each at the top, as upstream does, would put a lost KUBE-FORWARD jump before the load-balancer firewall.) Of a jump
 * that exists several times, as after a read that did not show it, the last one stays.
 *
 * @param there the chain's rules, ours and those of other programs
 * @param jumps ours of this chain; the last one comes first in the chain
 * @param isInPlace false: the jump's position (counted from 0) does not decide where others go. Default: true
 */
export function editJumps(
  there: readonly string[],
  jumps: readonly JumpRule[],
  isInPlace: (jump: JumpRule, at: number) => boolean = () => true,
): JumpEdits {
  const ours = new Set(jumps.map(({ args }) => args));
  const isSurplus = (text: string, at: number): boolean => ours.has(text) && there.lastIndexOf(text) > at;
  const rules = there.filter((text, at) => !isSurplus(text, at));
  const missing: { place: number; args: string }[] = [];
  let previous = -1;
  for (const jump of jumps.toReversed()) {
    const at = rules.indexOf(jump.args);
    if (at < 0) {
      rules.splice(++previous, 0, jump.args);
      missing.push({ place: previous + 1, args: jump.args });
    } else if (isInPlace(jump, at)) {
      previous = Math.max(previous, at);
    }
  }
  // Deleted by text, which takes the first one: rule numbers shift as soon as another program inserts a rule.
  return { surplus: there.filter(isSurplus), missing };
}

/** True if rules of `KUBE-SERVICES` jump to chains of iptables mode; IPVS mode has that chain, too. */
export function leadToServiceChains(rules: readonly string[]): boolean {
  return rules.some((rule) => /-j KUBE-(SVC|SVL|EXT|FW|NODEPORTS)\b/.test(rule));
}

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

/** Name of the chain in an `-A CHAIN …` line. */
export function chainOf(line: string): string {
  return line.slice(3, line.indexOf(" ", 3));
}

/** The rule in an `-A CHAIN …` line. */
export function ruleOf(line: string, chain: string): string {
  return line.slice(4 + chain.length);
}

/** Canonical rules by chain, of `-A` lines by chain. */
export function* bodyRules(
  bodies: Iterable<readonly [chain: string, lines: readonly string[]]>,
): Generator<readonly [chain: string, rules: readonly string[]]> {
  for (const [chain, lines] of bodies) {
    yield [chain, lines.map((line) => canonicalRuleText(ruleOf(line, chain)))];
  }
}

/** Canonical jumps of a table, by built-in chain. */
export function* jumpRules(
  jumps: readonly JumpRule[],
  table: Table,
): Generator<readonly [chain: string, rules: readonly string[]]> {
  for (const [chain, ofChain] of jumpsByChain(jumps, table)) {
    yield [chain, ofChain.map(({ args }) => canonicalRuleText(args))];
  }
}

/** Input of iptables-restore that lists chains and changes nothing. */
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
 * True if all of these rules are among those of the chain, in any order. A rule that cannot be read is not kproxy's.
 *
 * @param found the chain's rules, as iptables prints them
 * @param rules canonical rules
 */
export function holdsAmongOthers(found: readonly string[], rules: readonly string[]): boolean {
  return new Set(rules).isSubsetOf(new Set(found.map(readableRuleText)));
}
