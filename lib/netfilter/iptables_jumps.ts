/**
 * The tables and chains of iptables that carry our rules, and our jumps in the kernel's own chains: which are missing, and where they go;
 * chains as lines: sorted out of a table's text, asked for in a listing, held against what must be in them.
 *
 * @module
 */
import { canonicalRuleText, readableRuleText } from "./canonical_iptables_rule.ts";

/** The two tables that carry rules. */
export type Table = "filter" | "nat";

/** Something of each table. */
export type PerTable<T> = Readonly<Record<Table, T>>;

/** A rule in a chain of the kernel's own (INPUT, PREROUTING, …) that leads into ours. */
export interface JumpRule {
  /** The table of both chains. */
  readonly table: Table;
  /** The kernel's own chain. */
  readonly chain: string;
  /** What follows the chain name, `-j TARGET` included; comments quoted as in restore text. */
  readonly args: string;
  /** The chain that it leads to. */
  readonly target: string;
  /** True: it goes to the end of the chain. Default: to the top. */
  readonly isLast?: boolean;
}

/** A jump with the comment that kube-proxy writes. @param match what a packet must be besides, with a blank at its end */
export function jump(table: Table, chain: string, target: string, comment: string, match = ""): JumpRule {
  return { table, chain, target, args: `${match}-m comment --comment "${comment}" -j ${target}` };
}

/** A table's jumps by the chain that they are in. */
export function jumpsByChain(
  jumps: readonly JumpRule[],
  table: Table,
): ReadonlyMap<string, readonly JumpRule[]> {
  return Map.groupBy(jumps.filter((jump) => jump.table === table), ({ chain }) => chain);
}

/** The line that creates a chain, or empties it if it is there. */
export function chainLine(chain: string): string {
  return `:${chain} - [0:0]`;
}

/** What iptables-restore does in a table, all of it or nothing. */
export function tableBlock(table: Table | "mangle", lines: readonly string[]): string {
  return [`*${table}`, ...lines, "COMMIT", ""].join("\n");
}

/** What brings the jumps of one chain in order. */
export interface JumpEdits {
  /** What follows the chain's name, each to be deleted once; before the insertions. */
  readonly surplus: readonly string[];
  /** In this order; `place` is counted from 1, and takes the insertions before it into account. */
  readonly missing: readonly { readonly place: number; readonly args: string }[];
}

/**
 * Puts back the jumps that are missing, so that ours stand in the order of a first start; those that are there stay where they are.
 * (Inserting each at the top, as upstream does, would put a lost KUBE-FORWARD jump before the load-balancer firewall.) Of one that is
 * there several times, as after a read that did not show it, the last one stays.
 *
 * @param there the rules of the chain, ours and others'
 * @param jumps ours of this chain; the last one stands first
 * @param isInPlace false: where it stands (counted from 0) says nothing of where others go. Default: true
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
  // By their text, which takes the first one: a number would be another rule's as soon as another program inserts one.
  return { surplus: there.filter(isSurplus), missing };
}

/** True if rules of `KUBE-SERVICES` go on to chains of iptables mode; IPVS mode has that chain, too. */
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
