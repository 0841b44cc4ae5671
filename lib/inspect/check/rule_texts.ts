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
const STEPS = 2 ** 31;

/**
 * The rule's options, sorted: a third of what understanding it costs, and a node may have 300,000. Two rules with the same text have
 * the same options with the same values, so they take the same packets and do the same; of two others nothing is said.
 */
export function quickText(rule: string): string {
  const quote = rule.indexOf('"');
  const end = quote < 0 ? -1 : rule.indexOf('"', quote + 1);
  // More than one quoted word, or quotes within: others do not write like that.
  if (quote >= 0 && (end < 0 || rule.includes('"', end + 1) || rule.includes("\\"))) return rule;
  const quoted = quote < 0 ? "" : rule.slice(quote + 1, end);
  const words = quote < 0 ? rule : rule.slice(0, quote) + QUOTED + rule.slice(end + 1);
  const options: string[] = [];
  for (const word of words.split(" ")) {
    const last = options.length - 1;
    const isValue = last >= 0 && (word.charCodeAt(0) !== MINUS || options[last] === "!") && word !== "!";
    if (!isValue) options.push(word);
    else options[last] += ` ${valueText(word, options[last] ?? "", quoted)}`;
  }
  return options.sort().join("\n");
}

const MINUS = "-".charCodeAt(0);
/** Stands for the quoted word; blanks and quotes are in no other. */
const QUOTED = "\u0000";

function valueText(word: string, option: string, quoted: string): string {
  if (word === QUOTED) return quoted;
  if (option === "--probability") return String(Math.round(Number(word) * STEPS));
  return word.endsWith("/32") && (option.endsWith("-s") || option.endsWith("-d")) ? word.slice(0, -3) : word;
}
