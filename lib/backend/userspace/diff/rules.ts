/**
 * The rules of userspace mode once the ports of its portals are known, and what leads from the rules that are there to those.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { canonicalRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import {
  chainLine,
  editJumps,
  type JumpRule,
  jumpsByChain,
  type Table,
  tableBlock,
} from "../../../netfilter/iptables_jumps.ts";
import { CHAINS, JUMPS, LAST_JUMPS } from "../plan/chains.ts";
import type { Doorway, PortalId, PortalRule } from "../plan/ruleset.ts";

const TABLES: readonly Table[] = ["filter", "nat"];

/** Service → its rules, by name. */
export type RulesByService = ReadonlyMap<NamespacedName, readonly PortalRule[]>;

/** The rules of doorways whose portals have ports; those of others are left out. */
export function rulesOf(
  doorways: readonly Doorway[],
  portOf: (portal: PortalId) => number | undefined,
): readonly PortalRule[] {
  return doorways.flatMap(({ table, chain, before, after, portal }) => {
    const port = portOf(portal);
    return port === undefined ? [] : [{ table, chain, rule: `${before}${port}${after}` }];
  });
}

/** What `iptables-save` shows of a table that matters here: built-in chain → its rules without `-A CHAIN `. */
export type BuiltinRules = Readonly<Record<Table, ReadonlyMap<string, readonly string[]>>>;

/** The text that makes every chain hold exactly these rules, and puts back the jumps that are missing. */
export function fullText(services: RulesByService, builtin: BuiltinRules): string {
  return TABLES.map((table) => {
    const rules = CHAINS[table].flatMap((chain) => chainRules(services, table, chain));
    const lines = [...CHAINS[table].map(chainLine), ...rules, ...jumpLines(table, builtin)];
    return tableBlock(table, lines);
  }).join("");
}

function chainRules(services: RulesByService, table: Table, chain: string): string[] {
  const lines: string[] = [];
  for (const rules of services.values()) {
    for (const rule of rules) {
      if (rule.table === table && rule.chain === chain) lines.push(`-A ${chain} ${rule.rule}`);
    }
  }
  return lines;
}

/** What brings the jumps into place: those at the top where they are missing, those at the end likewise. */
function jumpLines(table: Table, builtin: BuiltinRules): string[] {
  const lines: string[] = [];
  for (const [chain, jumps] of jumpsByChain(JUMPS, table)) {
    const there = builtin[table].get(chain) ?? [];
    // They are written as `iptables-save` prints them.
    const isLast = ({ args }: JumpRule): boolean => LAST_JUMPS.has(args);
    const { surplus, missing } = editJumps(there, jumps.filter((jump) => !isLast(jump)));
    for (const args of surplus) lines.push(`-D ${chain} ${args}`);
    for (const { place, args } of missing) lines.push(`-I ${chain} ${place} ${args}`);
    for (const { args } of jumps.filter(isLast)) if (!there.includes(args)) lines.push(`-A ${chain} ${args}`);
  }
  return lines;
}

/**
 * The text that changes the rules of some Services; null if nothing is to be done.
 *
 * @param witness a rule of table nat that must be there, the last one of its Service in its chain: where it is not, iptables refuses all
 * of the text, as it does where a rule is missing that is taken away
 */
export function changeText(
  before: RulesByService,
  after: RulesByService,
  witness: PortalRule | null = null,
): string | null {
  const removed = new Map<Table, string[]>(TABLES.map((table) => [table, []]));
  const added = new Map<Table, string[]>(TABLES.map((table) => [table, []]));
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    const [old, now] = [before.get(name) ?? [], after.get(name) ?? []];
    // Order matters among the rules of one Service: where one of them is new, all are written again.
    if (old.length === now.length && old.every((rule, at) => sameRule(rule, now[at]!))) continue;
    for (const { table, chain, rule } of old) removed.get(table)!.push(`-D ${chain} ${rule}`);
    for (const { table, chain, rule } of now) added.get(table)!.push(`-A ${chain} ${rule}`);
  }
  const isWitnessed = removed.get("nat")!.length > 0;
  if (witness !== null && !isWitnessed && added.get("nat")!.length > 0) {
    const { chain, rule } = witness;
    removed.get("nat")!.push(`-D ${chain} ${rule}`, `-A ${chain} ${rule}`);
  }
  const blocks = TABLES.flatMap((table) => {
    const lines = [...removed.get(table)!, ...added.get(table)!];
    return lines.length === 0 ? [] : [tableBlock(table, lines)];
  });
  return blocks.length === 0 ? null : blocks.join("");
}

function sameRule(left: PortalRule, right: PortalRule): boolean {
  return left.rule === right.rule && left.chain === right.chain && left.table === right.table;
}

/** The canonical rules that each of our chains must hold: chain → texts, in any order. */
export function wantedChains(services: RulesByService): Map<Table, Map<string, string[]>> {
  const wanted = new Map<Table, Map<string, string[]>>();
  for (const table of TABLES) {
    const chains = new Map<string, string[]>();
    for (const chain of CHAINS[table]) {
      chains.set(
        chain,
        chainRules(services, table, chain).map((line) => canonicalRuleText(line.slice(4 + chain.length))),
      );
    }
    wanted.set(table, chains);
  }
  return wanted;
}
