/**
 * Compares chains of iptables and nft: rules that are missing, surplus, or in another order; in chains that Services share, of
 * which Service; and iptables rules of any mode.
 *
 * @module
 */
import { isServiceChain, KUBELETS_CHAINS } from "../../backend/iptables/plan/chains.ts";
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { staticBodies } from "../../backend/iptables/store/store.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import { readableRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import { groupByChain, jumpRules, ruleOf, type Table } from "../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset, SavedTable } from "../../netfilter/iptables_save.ts";
import { holdsLines } from "../../netfilter/printed_iptables_rule.ts";
import type { Difference, DifferenceList } from "./check.ts";

export const TABLES: readonly Table[] = ["filter", "nat"];
const NO_CHAINS: SavedTable = new Map();

/** Reports differences between the live iptables rules and a mode's plan to `list`. */
export function compareIptables(
  { base, services }: Pick<IptablesPlan, "base" | "services">,
  tables: IptablesRuleset,
  family: IpFamily,
  list: DifferenceList,
): void {
  for (const table of TABLES) {
    const held = tables.get(table) ?? NO_CHAINS;
    const bodies = staticBodies(base, table);
    for (const chain of base.chains[table].filter((one) => !base.dispatch[table].includes(one))) {
      const pair = chainPair(table, chain, bodies.get(chain) ?? [], held);
      // Old kubelets write rules to some of these chains, too.
      list.add(null, chainDifference({ ...pair, isShared: KUBELETS_CHAINS.has(chain) }));
    }
    for (const [chain, jumps] of jumpRules(base.jumps, table)) {
      const there = new Set(held.get(chain)?.rules.map(ruleText));
      const wanted = jumps.filter((text) => !there.has(text));
      if (wanted.length === 0) continue;
      const cause = wanted.length === 1 ? "the jump is missing" : `${wanted.length} jumps are missing`;
      list.add(null, { kind: "missing", place: chainPlace(table, chain), cause, wanted, found: [] });
    }
    for (const chain of base.dispatch[table]) {
      const [head, tail] = [base.head[table], base.tail[table]];
      compareSharedChain({ services, table, chain, head, tail, found: held.get(chain)?.rules }, list);
    }
  }
  const nat = tables.get("nat") ?? NO_CHAINS;
  const stale = new Set(base.hasServiceChains ? [...nat.keys()].filter(isServiceChain) : []);
  for (const [service, rules] of services) {
    const bodies = groupByChain(rules?.rules ?? []);
    for (const chain of rules?.chains ?? []) {
      stale.delete(chain);
      const lines = bodies.get(chain) ?? [];
      if (holdsLines(nat.get(chain), lines, family)) continue;
      list.add(service, chainDifference(chainPair("nat", chain, lines, nat)));
    }
  }
  for (const chain of stale) {
    const found = nat.get(chain)?.rules ?? [];
    const name = found.map(serviceOfRule).find((service) => service !== null);
    const of = name === undefined ? "some Service" : `Service ${name}`;
    const cause = `a chain of ${of}, which nothing wants any more`;
    list.leave({ place: chainPlace("nat", chain), cause, wanted: [], found });
  }
}

/** Place in reports, e.g. `iptables nat KUBE-SERVICES`. */
export function chainPlace(table: string, chain: string): string {
  return `iptables ${table} ${chain}`;
}

/** @param lines desired lines, `-A CHAIN …` */
function chainPair(table: Table, chain: string, lines: readonly string[], held: SavedTable): ChainPair {
  const wanted = lines.map((line) => ruleOf(line, chain));
  return { place: chainPlace(table, chain), wanted, found: held.get(chain)?.rules, textOf: ruleText };
}

/** Canonical text, equal for a rule as written and as saved; the rule itself if it cannot be read. */
function ruleText(rule: string): string {
  return readableRuleText(rule) ?? rule;
}

const COMMENT = /--comment "?([^\s"/]+\/[^\s":]+)/;

/** The Service that a rule's comment names; null: none. */
function serviceOfRule(rule: string): NamespacedName | null {
  return COMMENT.exec(rule)?.[1] ?? null;
}

interface ChainPair {
  readonly place: string;
  /** Desired rules, as written. */
  readonly wanted: readonly string[];
  /** Live rules, as read; undefined: there is no such chain. */
  readonly found: readonly string[] | undefined;
  /** Text to compare, equal for a rule as written and as read. @default {the text itself} */
  readonly textOf?: (rule: string) => string;
  /** True: others write to the chain, too; their rules only show where one of ours is missing. */
  readonly isShared?: boolean;
}

/** Difference of a chain; null if there is none. */
export function chainDifference(
  { place, wanted, found, textOf = (rule) => rule, isShared = false }: ChainPair,
): Difference | null {
  if (found === undefined) return { kind: "missing", place, cause: "the chain is gone", wanted, found: [] };
  if (isSame(wanted, found)) return null;
  const [wantedTexts, foundTexts] = [wanted.map(textOf), found.map(textOf)];
  if (isSame(wantedTexts, foundTexts)) return null;
  const missing = without(wanted, wantedTexts, foundTexts);
  const surplus = isShared && missing.length === 0 ? [] : without(found, foundTexts, wantedTexts);
  if (missing.length + surplus.length === 0) {
    const ours = new Set(wantedTexts);
    if (isShared && isSubsequence(wantedTexts, foundTexts.filter((text) => ours.has(text)))) return null;
    return { kind: "order", place, cause: "the rules stand in another order", wanted, found };
  }
  if (found.length === 0) return { kind: "missing", place, cause: "the chain is empty", wanted, found };
  return { ...listDifference(missing, surplus, "rule"), place };
}

/** The difference that missing and surplus rules (or the like) make. */
export function listDifference(
  missing: readonly string[],
  surplus: readonly string[],
  what: string,
): Omit<Difference, "place"> {
  const lists = { wanted: missing, found: surplus };
  if (surplus.length === 0) return { kind: "missing", cause: `${count(missing, what)} missing`, ...lists };
  if (missing.length === 0) return { kind: "surplus", cause: `${count(surplus, what)} too much`, ...lists };
  const pronoun = missing.length === 1 ? "it" : "they";
  return { kind: "changed", cause: `${count(missing, what)} not as ${pronoun} should be`, ...lists };
}

function count(list: readonly string[], what: string): string {
  return list.length === 1 ? `a ${what} is` : `${list.length} ${what}s are`;
}

function isSame(left: readonly string[], right: readonly string[]): boolean {
  return left.length === right.length && left.every((text, index) => text === right[index]);
}

function isSubsequence(wanted: readonly string[], found: readonly string[]): boolean {
  let at = 0;
  for (const text of found) if (text === wanted[at]) at++;
  return at === wanted.length;
}

/** Entries of `list` that occur more often than in `others`; compared by their `texts`. */
function without(
  list: readonly string[],
  texts: readonly string[],
  others: readonly string[],
): readonly string[] {
  const left = new Map<string, number>();
  for (const text of others) left.set(text, (left.get(text) ?? 0) + 1);
  return list.filter((_, index) => {
    const text = texts[index] ?? "";
    const count = left.get(text) ?? 0;
    if (count > 0) left.set(text, count - 1);
    return count === 0;
  });
}

interface SharedChain {
  readonly table: Table;
  readonly chain: string;
  /** Rules of each Service, in all shared chains; null: the Service was deleted. */
  readonly services: IptablesPlan["services"];
  /** Lines before and after those of the Services. */
  readonly head: readonly string[];
  readonly tail: readonly string[];
  /** Live rules; undefined: the chain does not exist. */
  readonly found: readonly string[] | undefined;
}

interface Share {
  readonly missing: string[];
  readonly surplus: string[];
  /** Positions of its live rules, in the order of the plan. */
  readonly taken: { readonly at: number; readonly rule: string; readonly packets: string }[];
}

/** Reports differences to `list`. Services may be in any order: each change puts rules where there is room. */
function compareSharedChain(shared: SharedChain, list: DifferenceList): void {
  const { services, table, chain, found = [] } = shared;
  const place = chainPlace(table, chain);
  const positions = Map.groupBy(found.keys(), (at) => ruleText(found[at] ?? ""));
  const shares = new Map<NamespacedName, Share>();
  const shareOf = (service: NamespacedName): Share => {
    const share = shares.get(service) ?? { missing: [], surplus: [], taken: [] };
    shares.set(service, share);
    return share;
  };
  for (const [service, rules] of services) {
    for (const { rule, ...where } of rules?.dispatch ?? []) {
      if (where.table !== table || where.chain !== chain) continue;
      const text = ruleText(rule);
      const at = positions.get(text)?.shift();
      if (at === undefined) shareOf(service).missing.push(rule);
      else shareOf(service).taken.push({ at, rule, packets: packetsOf(text) });
    }
  }
  const last = compareStaticRules(shared, positions, list);
  for (const at of [...positions.values()].flat().sort((a, b) => a - b)) {
    const rule = found[at] ?? "";
    const service = serviceOfRule(rule);
    if (service !== null && services.get(service) != null) {
      shareOf(service).surplus.push(rule);
      continue;
    }
    const difference = { place, wanted: [], found: [rule] };
    if (service === null) {
      list.add(null, { kind: "surplus", cause: "a rule that is not ours", ...difference });
    } else list.leave({ cause: `a rule of Service ${service}, which is gone`, ...difference });
  }
  const gone = shared.found === undefined
    ? "; the chain is gone"
    : found.length === 0
    ? "; the chain is empty"
    : "";
  for (const [service, { missing, surplus, taken }] of shares) {
    if (missing.length + surplus.length > 0) {
      const difference = listDifference(missing, surplus, "rule");
      list.add(service, { ...difference, cause: `${difference.cause}${gone}`, place });
    }
    const late = outOfOrder(taken, last);
    if (late.length === 0) continue;
    const cause = "rules stand behind others that take their packets";
    list.add(service, { kind: "order", place, cause, wanted: [], found: late });
  }
}

/** Compares rules that no Service owns; yields the position of the last one, after which nothing is reached. */
function compareStaticRules(
  { table, chain, head, tail, found }: SharedChain,
  positions: Map<string, number[]>,
  list: DifferenceList,
): number {
  const own = (lines: readonly string[]): readonly string[] =>
    lines.filter((line) => line.startsWith(`-A ${chain} `)).map((line) => ruleOf(line, chain));
  const [first, behind] = [own(head), own(tail)];
  const wanted = [...first, ...behind];
  const there: string[] = [];
  let last = Infinity;
  for (const [index, rule] of wanted.entries()) {
    const at = positions.get(ruleText(rule))?.shift();
    if (at === undefined) continue;
    there.push(rule);
    if (index >= first.length) last = Math.min(last, at);
  }
  if (found === undefined || there.length < wanted.length) {
    list.add(null, chainDifference({ place: chainPlace(table, chain), wanted, found: found && there }));
  }
  return last;
}

/** The rule's conditions, without comment and target. */
function packetsOf(text: string): string {
  return text.replace(/ ?-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+)/, "").replace(/ ?-[jg] .*$/, "");
}

/** Rules after the last one of the chain, or before a rule of the same Service and conditions that must come first. */
function outOfOrder(taken: Share["taken"], last: number): readonly string[] {
  const reached = new Map<string, number>();
  return taken.filter(({ at, packets }) => {
    const before = reached.get(packets) ?? -1;
    reached.set(packets, Math.max(before, at));
    return at > last || at < before;
  }).map(({ rule }) => rule);
}
