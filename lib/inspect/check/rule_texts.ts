/**
 * Texts of iptables' rules: by which rules as written and as saved compare, whose they are, and where they stand.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import { readableRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import {
  optionsOf,
  PROBABILITY_STEPS,
  QUOTED,
  withoutQuoted,
} from "../../netfilter/printed_iptables_rule.ts";

/** E.g. `iptables nat KUBE-SERVICES`. */
export function chainPlace(table: string, chain: string): string {
  return `iptables ${table} ${chain}`;
}

const COMMENT = /--comment "?([^\s"/]+\/[^\s":]+)/;

/** The Service that a comment names; null: none. */
export function serviceOfRule(rule: string): NamespacedName | null {
  return COMMENT.exec(rule)?.[1] ?? null;
}

/** Rules of shared chains, which are asked for again and again. */
export class RuleTexts {
  readonly #known = new Map<string, string>();

  /** One that cannot be read stands for itself. */
  readonly of = (rule: string): string => {
    const known = this.#known.get(rule);
    if (known !== undefined) return known;
    const text = readableRuleText(rule) ?? rule;
    this.#know(rule, text);
    return text;
  };

  /** Tells that one rule is the other in other words. */
  knowAlike(one: string, other: string): void {
    this.#know(one, this.of(other));
  }

  #know(rule: string, text: string): void {
    if (this.#known.size < MAX_KNOWN) this.#known.set(rule, text);
  }
}

const MAX_KNOWN = 50_000;
/**
 * The rule's options, sorted: a third of what understanding it costs, and a node may have 300,000. Two rules with the same text have
 * the same options with the same values, so they take the same packets and do the same; of two others nothing is said.
 */
export function quickText(rule: string): string {
  const cut = withoutQuoted(rule);
  if (cut === null) return rule;
  return optionsOf(cut.words, (word, option) => valueText(word, option, cut.quoted)).sort().join("\n");
}

function valueText(word: string, option: string, quoted: string): string {
  if (word === QUOTED) return quoted;
  if (option === "--probability") return String(Math.round(Number(word) * PROBABILITY_STEPS));
  return word.endsWith("/32") && (option.endsWith("-s") || option.endsWith("-d")) ? word.slice(0, -3) : word;
}
