/**
 * Texts of iptables' rules: by which rules as written and as saved compare, whose they are, and where they stand.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import { readableRuleText } from "../../netfilter/canonical_iptables_rule.ts";

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
/** The kernel keeps 31 bits of a probability. */
export const PROBABILITY_STEPS = 2 ** 31;
/** Stands for the quoted word; blanks and quotes are in no other. */
export const QUOTED = "\u0000";

/**
 * The rule's options, sorted: a third of what understanding it costs, and a node may have 300,000. Two rules with the same text have
 * the same options with the same values, so they take the same packets and do the same; of two others nothing is said.
 */
export function quickText(rule: string): string {
  const cut = withoutQuoted(rule);
  if (cut === null) return rule;
  return optionsOf(cut.words, (word, option) => valueText(word, option, cut.quoted)).sort().join("\n");
}

/** The words of a rule, {@linkcode QUOTED} in the place of the one in quotes. Null: there are more, which others do not write. */
export function withoutQuoted(rule: string): { readonly words: string; readonly quoted: string } | null {
  const quote = rule.indexOf('"');
  if (quote < 0) return { words: rule, quoted: "" };
  const end = rule.indexOf('"', quote + 1);
  // Nor quotes within it.
  if (end < 0 || rule.includes('"', end + 1) || rule.includes("\\")) return null;
  return { words: rule.slice(0, quote) + QUOTED + rule.slice(end + 1), quoted: rule.slice(quote + 1, end) };
}

/**
 * Each option with its values, and with the `!` before it.
 *
 * @param valueOf what stands for a value of an option, whose text up to there it is told
 */
export function optionsOf(
  words: string,
  valueOf: (word: string, option: string) => string = (word) => word,
): string[] {
  const options: string[] = [];
  for (const word of words.split(" ")) {
    const last = options.length - 1;
    const isValue = last >= 0 && (word.charCodeAt(0) !== MINUS || options[last] === "!") && word !== "!";
    if (isValue) options[last] += ` ${valueOf(word, options[last] ?? "")}`;
    else options.push(word);
  }
  return options;
}

const MINUS = "-".charCodeAt(0);

function valueText(word: string, option: string, quoted: string): string {
  if (word === QUOTED) return quoted;
  if (option === "--probability") return String(Math.round(Number(word) * PROBABILITY_STEPS));
  return word.endsWith("/32") && (option.endsWith("-s") || option.endsWith("-d")) ? word.slice(0, -3) : word;
}
