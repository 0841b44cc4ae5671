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
  type PerTable,
  type Table,
  tableBlock,
} from "../../../netfilter/iptables_jumps.ts";
import { CHAINS, LAST_JUMPS, PORTALS_FIREWALL } from "../plan/chains.ts";
import type { Doorway, PortalId, PortalRule } from "../plan/ruleset.ts";

/** In this order they are written: who may come to a port, before packets are led there. */
export const TABLES: readonly Table[] = ["filter", "nat"];

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

/**
 * The text that makes every chain of a table hold exactly these rules, and puts back the jumps that are missing.
 *
 * @param others rules about ports of others that the firewall holds besides
 */
export function tableText(
  table: Table,
  services: RulesByService,
  builtin: BuiltinRules,
  jumps: readonly JumpRule[],
  others: readonly string[] = [],
): string {
  const rules = CHAINS[table].flatMap((chain) => chainRules(services, table, chain));
  const besides = table === "filter" ? others.map((rule) => `-A ${PORTALS_FIREWALL} ${rule}`) : [];
  return tableBlock(table, [
    ...CHAINS[table].map(chainLine),
    ...rules,
    ...besides,
    ...jumpLines(table, builtin, jumps),
  ]);
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
function jumpLines(table: Table, builtin: BuiltinRules, all: readonly JumpRule[]): string[] {
  const lines: string[] = [];
  for (const [chain, jumps] of jumpsByChain(all, table)) {
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

/** What changes the rules of some Services, in the order in which it is written; null where nothing is to be done. */
export interface RuleChange {
  /** Who may come to new ports, before packets are led there. */
  readonly filterBefore: string | null;
  readonly nat: string | null;
  /** Rules about ports to which nothing is led any more, once they are closed. */
  readonly filterAfter: string | null;
}

/**
 * The texts that change the rules of some Services.
 *
 * @param witness a rule of table nat that must be there, the last one of its Service in its chain: where it is not, iptables refuses all
 * of the text, as it does where a rule is missing that is taken away
 */
export function changeTexts(
  before: RulesByService,
  after: RulesByService,
  witness: PortalRule | null = null,
): RuleChange {
  const removed: PerTable<string[]> = { filter: [], nat: [] };
  const added: PerTable<string[]> = { filter: [], nat: [] };
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    for (const table of TABLES) {
      const ofTable = (rules: readonly PortalRule[] = []): string[] =>
        rules.filter((rule) => rule.table === table).map(({ chain, rule }) => `${chain} ${rule}`);
      const [old, now] = [ofTable(before.get(name)), ofTable(after.get(name))];
      // In table nat order matters among the rules of one Service: where one of them is new, all are written again.
      const isWhole = table === "filter" || old.join("\n") === now.join("\n");
      removed[table].push(...isWhole ? without(old, now) : old);
      added[table].push(...isWhole ? without(now, old) : now);
    }
  }
  const seen = witness === null ? [] : [`${witness.chain} ${witness.rule}`];
  if (removed.nat.length === 0 && added.nat.length > 0) {
    removed.nat.push(...seen);
    added.nat.unshift(...seen);
  }
  const text = (table: Table, deleted: readonly string[], appended: readonly string[]): string | null => {
    const lines = [...deleted.map((line) => `-D ${line}`), ...appended.map((line) => `-A ${line}`)];
    return lines.length === 0 ? null : tableBlock(table, lines);
  };
  const filterBefore = text("filter", [], added.filter);
  return {
    // What is refused in one table keeps all that follows from being written.
    filterBefore: filterBefore === null ? null : (text("nat", seen, seen) ?? "") + filterBefore,
    nat: text("nat", removed.nat, added.nat),
    filterAfter: text("filter", removed.filter, []),
  };
}

/** What is in the one and not in the other. */
function without(rules: readonly string[], others: readonly string[]): readonly string[] {
  const known = new Set(others);
  return rules.filter((rule) => !known.has(rule));
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
