/**
 * Cached canonical texts of rules: fakes see the same rules again and again, thousands of times in property tests.
 *
 * @module
 */
import { canonicalRuleText } from "../../lib/netfilter/canonical_iptables_rule.ts";

const MOST = 20_000;
const known = new Map<string, string>();

/** As {@linkcode canonicalRuleText}. @throws {SyntaxError} as that does, each time */
export function canonicalRule(text: string): string {
  const found = known.get(text);
  if (found !== undefined) return found;
  const canonical = canonicalRuleText(text);
  if (known.size >= MOST) known.clear();
  known.set(text, canonical);
  return canonical;
}
