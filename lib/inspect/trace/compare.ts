/**
 * The first step at which a packet's live path leaves its desired one, and which steps are rules of a service proxy.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { canonicalRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import { readNftRule } from "../../netfilter/parse_nft_rule.ts";
import { type Flow, type FlowOutcome, formatFlow, isSameFlow, type RuleHit } from "../../sim/flow.ts";
import { PORTAL_TABLE } from "../../sim/portals.ts";
import { proxyOfTable } from "../live/live.ts";

export interface TraceDifference {
  /** Outcomes of the packet by desired and by live rules. */
  readonly desired: string;
  readonly live: string;
  /** The desired step that live rules skip; null: the desired path has ended there. */
  readonly desiredStep: RuleHit | null;
  /** The live step in its place; null: no rule. */
  readonly liveStep: RuleHit | null;
  /** True: the live step is no rule of a service proxy. */
  readonly isForeign: boolean;
}

/** Null if both outcomes are the same. */
export function differenceOf(desired: Flow, live: Flow, family: IpFamily): TraceDifference | null {
  if (isSameFlow(desired, live)) return null;
  const [wanted, found] = [formatFlow(desired), formatFlow(live)];
  if (wanted === found) return null;
  const { wantedOne, foundOne } = differingOutcomes(desired, live, family);
  const step = firstDifference(wantedOne?.hits ?? [], foundOne?.hits ?? [], family);
  return {
    desired: wanted,
    live: found,
    ...step,
    isForeign: step.liveStep !== null && !isOwnHit(step.liveStep),
  };
}

function endOf(outcome: FlowOutcome): string {
  return formatFlow({ outcomes: [{ ...outcome, mark: 0 }], problems: [] });
}

/** Outcomes that the other flow does not have; of several, the pair with the longest common path. */
function differingOutcomes(
  desired: Flow,
  live: Flow,
  family: IpFamily,
): { readonly wantedOne: FlowOutcome | undefined; readonly foundOne: FlowOutcome | undefined } {
  const [wantedEnds, foundEnds] = [desired, live].map(({ outcomes }) => new Set(outcomes.map(endOf)));
  const missing = desired.outcomes.filter((one) => foundEnds?.has(endOf(one)) !== true);
  const extra = live.outcomes.filter((one) => wantedEnds?.has(endOf(one)) !== true);
  const [wanted] = missing.length > 0 ? missing : desired.outcomes;
  const candidates = extra.length > 0 ? extra : live.outcomes;
  let found = candidates[0];
  let longest = -1;
  // Endpoints are alike: of a thousand, the first ones suffice.
  for (const one of candidates.slice(0, 50)) {
    const shared = sharedSteps(wanted?.hits ?? [], one.hits, family);
    if (shared > longest) [longest, found] = [shared, one];
  }
  return { wantedOne: wanted, foundOne: found };
}

function sharedSteps(wanted: readonly RuleHit[], found: readonly RuleHit[], family: IpFamily): number {
  const own = found.filter(isOwnHit);
  const at = wanted.filter(isOwnHit).findIndex((hit, index) => !isSame(hit, own[index], family));
  return at < 0 ? wanted.length : at;
}

function firstDifference(
  wanted: readonly RuleHit[],
  found: readonly RuleHit[],
  family: IpFamily,
): { readonly desiredStep: RuleHit | null; readonly liveStep: RuleHit | null } {
  const steps = wanted.filter(isOwnHit);
  let next = 0;
  for (const [index, hit] of found.entries()) {
    const step = steps[next];
    if (isSame(step, hit, family)) {
      next++;
      continue;
    }
    // Rules of other programs may match on the way, as long as the packet goes on.
    const isLast = index === found.length - 1;
    if (isOwnHit(hit) || isLast) return { desiredStep: step ?? null, liveStep: hit };
  }
  return { desiredStep: steps[next] ?? null, liveStep: null };
}

/** True for the same step, in any spelling of its rule: kube-proxy and kproxy have the same chain hashes. */
function isSame(left: RuleHit | undefined, right: RuleHit | undefined, family: IpFamily): boolean {
  if (left === undefined || right === undefined) return false;
  return left.table === right.table && left.chain === right.chain &&
    (left.rule === right.rule || meaning(left, family) === meaning(right, family));
}

function meaning({ table, rule, index }: RuleHit, family: IpFamily): string {
  if (index === 0 || table === "ipvs" || table === PORTAL_TABLE) return rule.replace(/^[^:]*: /, "");
  if (table.includes(" ")) {
    return JSON.stringify(
      readNftRule(rule, family, table.startsWith("inet ")).filter(({ kind }) => kind !== "note"),
      textOfMaps,
    );
  }
  try {
    return canonicalRuleText(rule);
  } catch (error) {
    if (error instanceof SyntaxError) return rule;
    throw error;
  }
}

function textOfMaps(_key: string, value: unknown): unknown {
  return value instanceof Map ? [...value] : value;
}

/** True for rules of a service proxy, and for jumps into them. */
export function isOwnHit({ table, chain, rule }: RuleHit): boolean {
  if (table === "ipvs" || table === PORTAL_TABLE || proxyOfTable(table) !== null) return true;
  return !table.includes(" ") && (chain.startsWith("KUBE-") || / ?-[jg] KUBE-/.test(rule));
}

/** The rule that ended the packet's path, unless it accepted it, or is a service proxy's. */
export function foreignEnd({ verdict, hits }: FlowOutcome): RuleHit | null {
  const last = hits.at(-1);
  return verdict === "accept" || last === undefined || isOwnHit(last) ? null : last;
}

/** The rule that translated the destination, unless it is a service proxy's. */
function foreignTranslation({ translatedTo, hits }: FlowOutcome): RuleHit | null {
  const translating = hits.filter(({ table, rule }) => table === "ipvs" || /dnat|DNAT|REDIRECT/.test(rule));
  return translatedTo === "" || translating.some(isOwnHit) ? null : translating[0] ?? null;
}

/** The rule of another program that exempted the packet from conntrack before a service proxy's rules. */
function foreignNotrack({ hits }: FlowOutcome): RuleHit | null {
  return hits.find((hit) =>
    !isOwnHit(hit) && /(?:^| )(?:-j CT .*--notrack|-j NOTRACK|notrack)\b/.test(hit.rule)
  ) ?? null;
}

/** What other programs' rules have done to the packet, in sentences. */
export function foreignFindings(outcome: FlowOutcome): readonly string[] {
  const done: readonly (readonly [what: string, hit: RuleHit | null])[] = [
    [
      "No connection of the packet is tracked, so that no service proxy's rule translates it",
      foreignNotrack(outcome),
    ],
    [
      `The packet is ${outcome.verdict === "drop" ? "dropped" : "refused"} by what is no service proxy's`,
      foreignEnd(outcome),
    ],
    [
      `The packet is sent to ${outcome.translatedTo} by what is no service proxy's`,
      foreignTranslation(outcome),
    ],
  ];
  return done.flatMap(([what, hit]) => hit === null ? [] : [`${what}: ${placeOf(hit)}`]);
}

/** Place of a hit and its rule, e.g. `table filter chain FORWARD`. */
export function placeOf({ table, chain, index, rule }: RuleHit): string {
  if (table === "interface" || table === "rp_filter" || table === "routing") return rule;
  if (table === PORTAL_TABLE) return `${chain}: ${rule}`;
  if (table === "ipvs") return `virtual server ${chain}: ${rule}`;
  return `table ${table} chain ${chain}${index === 0 ? "" : ` rule ${index}`}: ${rule}`;
}
