/**
 * Compares a chain that Services share: whose rules are missing, too many, or behind others that take their packets.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import { ruleOf } from "../../netfilter/iptables_chains.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import type { DifferenceList } from "./difference.ts";
import { chainDifference, listDifference } from "./rule_lists.ts";
import { chainPlace, type RuleTexts, serviceOfRule } from "./rule_texts.ts";

/** What of a plan stands in chains that Services share. */
export interface SharedRules {
  /** Null: the Service is gone. */
  readonly services: ReadonlyMap<
    NamespacedName,
    {
      readonly dispatch: readonly { readonly table: Table; readonly chain: string; readonly rule: string }[];
    } | null
  >;
  /** Lines before and behind those of Services, by table. */
  readonly base: Readonly<Record<"head" | "tail", Readonly<Record<Table, readonly string[]>>>>;
}

/** One shared chain. */
export interface SharedChain {
  readonly plan: SharedRules;
  readonly table: Table;
  readonly chain: string;
  /** Undefined: it is not there. */
  readonly found: readonly string[] | undefined;
}

/** The rules of one Service there. */
interface Share {
  readonly missing: string[];
  readonly surplus: string[];
  /** Where its wanted rules stand, in the order in which they should. */
  readonly taken: { readonly at: number; readonly rule: string; readonly packets: string }[];
}

/** Tells `list` of whatever differs. Services may stand in any order: each change puts theirs where there is room. */
export function compareSharedChain(shared: SharedChain, texts: RuleTexts, list: DifferenceList): void {
  const { plan, table, chain, found = [] } = shared;
  const place = chainPlace(table, chain);
  const positions = positionsOf(found, texts);
  const shares = new Map<NamespacedName, Share>();
  const shareOf = (service: NamespacedName): Share => {
    const known = shares.get(service);
    if (known !== undefined) return known;
    const share: Share = { missing: [], surplus: [], taken: [] };
    shares.set(service, share);
    return share;
  };
  for (const [service, rules] of plan.services) {
    for (const { rule, ...where } of rules?.dispatch ?? []) {
      if (where.table !== table || where.chain !== chain) continue;
      const written = ruleOf(`-A ${chain} ${rule}`, chain);
      const text = texts.of(written);
      const at = positions.get(text)?.shift();
      if (at === undefined) shareOf(service).missing.push(written);
      else shareOf(service).taken.push({ at, rule: written, packets: packetsOf(text) });
    }
  }
  const last = compareBaseRules(shared, positions, texts, list);
  for (const at of [...positions.values()].flat().sort((a, b) => a - b)) {
    const rule = found[at] ?? "";
    const service = serviceOfRule(rule);
    if (service !== null && plan.services.get(service) != null) shareOf(service).surplus.push(rule);
    else {
      const cause = service === null
        ? "a rule that is not ours"
        : `a rule of Service ${service}, which is gone`;
      const difference = { kind: "leftover", place, cause, wanted: [], found: [rule] } as const;
      if (service === null) list.add(null, { ...difference, kind: "surplus" });
      else list.leftovers.push(difference);
    }
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
    if (late.length > 0) {
      const cause = "rules stand behind others that take their packets";
      list.add(service, { kind: "order", place, cause, wanted: [], found: late });
    }
  }
}

function positionsOf(found: readonly string[], texts: RuleTexts): Map<string, number[]> {
  const positions = new Map<string, number[]>();
  for (const [at, rule] of found.entries()) {
    const text = texts.of(rule);
    const known = positions.get(text);
    if (known === undefined) positions.set(text, [at]);
    else known.push(at);
  }
  return positions;
}

/** Rules that are there whatever the Services are; yields the place of the last one, behind which nothing is reached. */
function compareBaseRules(
  { plan, table, chain, found }: SharedChain,
  positions: Map<string, number[]>,
  texts: RuleTexts,
  list: DifferenceList,
): number {
  const linesOf = (lines: readonly string[]): readonly string[] =>
    lines.filter((line) => line.startsWith(`-A ${chain} `)).map((line) => ruleOf(line, chain));
  const [head, tail] = [linesOf(plan.base.head[table]), linesOf(plan.base.tail[table])];
  const there: string[] = [];
  let last = Infinity;
  for (const rule of [...head, ...tail]) {
    const at = positions.get(texts.of(rule))?.shift();
    if (at === undefined) continue;
    there.push(rule);
    if (tail.includes(rule)) last = Math.min(last, at);
  }
  const pair = { place: chainPlace(table, chain), wanted: [...head, ...tail] };
  if (found === undefined) list.add(null, chainDifference({ ...pair, found }));
  else if (there.length < pair.wanted.length) list.add(null, chainDifference({ ...pair, found: there }));
  return last;
}

/** Which packets a rule takes, whatever it does with them. */
function packetsOf(text: string): string {
  return text.replace(/ ?-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+)/, "").replace(/ ?-[jg] .*$/, "");
}

/** Rules behind the last one of the chain, or before one of the same Service for the same packets that should go before. */
function outOfOrder(taken: Share["taken"], last: number): readonly string[] {
  const reached = new Map<string, number>();
  return taken.filter(({ at, packets }) => {
    const before = reached.get(packets) ?? -1;
    reached.set(packets, Math.max(before, at));
    return at > last || at < before;
  }).map(({ rule }) => rule);
}
