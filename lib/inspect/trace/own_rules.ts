/**
 * Which rules are a service proxy's, and which are somebody else's.
 *
 * @module
 */
import type { FlowOutcome, RuleHit } from "../../sim/flow.ts";
import { PORTAL_TABLE } from "../../sim/portals.ts";

/** Tables of nftables mode: kproxy's and kube-proxy's. */
const PROXY_TABLES = /^(?:ip|ip6|inet) (?:kproxy|kube-proxy)$/;

/** True for rules of a service proxy, and for jumps into them. */
export function isOwnHit({ table, chain, rule }: RuleHit): boolean {
  if (table === "ipvs" || table === PORTAL_TABLE || PROXY_TABLES.test(table)) return true;
  return !table.includes(" ") && (chain.startsWith("KUBE-") || / ?-[jg] KUBE-/.test(rule));
}

/** What ended the packet's way, if that is neither a service proxy's rule nor one that let it pass. */
export function foreignEnd({ verdict, hits }: FlowOutcome): RuleHit | null {
  const last = hits.at(-1);
  return verdict === "accept" || last === undefined || isOwnHit(last) ? null : last;
}

/** What sent the packet elsewhere, if that is no rule of a service proxy. */
export function foreignTranslation({ translatedTo, hits }: FlowOutcome): RuleHit | null {
  if (translatedTo === "") return null;
  const own = hits.some((hit) =>
    isOwnHit(hit) && (hit.table === "ipvs" || /dnat|DNAT|REDIRECT/.test(hit.rule))
  );
  return own ? null : hits.find(({ rule }) => /dnat|DNAT|REDIRECT/.test(rule)) ?? null;
}

/** What switched connection tracking off for the packet before a service proxy's rules saw it, if that is no rule of such. */
export function foreignNotrack({ hits }: FlowOutcome): RuleHit | null {
  return hits.find((hit) =>
    !isOwnHit(hit) && /(?:^| )(?:-j CT .*--notrack|-j NOTRACK|notrack)\b/.test(hit.rule)
  ) ?? null;
}
