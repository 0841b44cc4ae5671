/**
 * Texts of iptables' rules by which rules as written and as saved compare.
 *
 * @module
 */
import { readableRuleText } from "../../netfilter/canonical_iptables_rule.ts";

/** A node may have 300,000 rules that differ only in addresses and names: each shape is understood once. */
export class RuleTexts {
  readonly #known = new Map<string, string>();

  /** One that cannot be read stands for itself. */
  readonly of = (rule: string): string => {
    const known = this.#known.get(rule);
    if (known !== undefined) return known;
    const text = readableRuleText(rule) ?? rule;
    // Rules of endpoints are asked for once, those of shared chains again and again.
    if (this.#known.size < MAX_KNOWN) this.#known.set(rule, text);
    return text;
  };
}

const MAX_KNOWN = 50_000;
