/**
 * Written rules → their text in `iptables-save`, so that a node's 300,000 can be compared as printed.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import { canonicalRuleText, readableRuleText } from "./canonical_iptables_rule.ts";
import type { SavedChain } from "./iptables_save.ts";

/** Steps of a probability: the kernel keeps 31 bits. */
const PROBABILITY_STEPS = 2 ** 31;
/** Placeholder for the quoted word; no other word has blanks and quotes. */
const QUOTED = "\u0000";

/** Options that are printed first, in this order. */
const FRONT = ["-s", "-d", "-i", "-o", "-p"];
const COMMENT = "--comment ";
const PROBABILITY = "--probability ";

/**
 * The printed form of a rule of ours: addresses, interfaces and protocol first, then the rest in the order written. Where a program
 * prints it otherwise the texts differ, and slower comparisons decide; no two different rules have the same text.
 */
export function printedRule(rule: string, family: IpFamily): string {
  const cut = withoutQuoted(rule);
  if (cut === null) return rule;
  const front: string[] = [];
  const rest: string[] = [];
  for (const option of optionsOf(cut.words)) {
    const name = option.startsWith("! ") ? option.slice(2, 4) : option.slice(0, 2);
    const rank = option.length > 3 && !option.startsWith("--") ? FRONT.indexOf(name) : -1;
    if (rank < 0) rest.push(printed(option));
    else front[rank] = rank < 2 ? withPrefixLength(option, family) : option;
  }
  const text = [...front.filter((option) => option !== undefined), ...rest].join(" ");
  return (text.includes("-m recent ") ? withRecent(text, family) : text).replace(
    QUOTED,
    () => `"${cut.quoted}"`,
  );
}

function withPrefixLength(option: string, family: IpFamily): string {
  return option.includes("/") ? option : `${option}/${family === "IPv4" ? 32 : 128}`;
}

/** Options of `recent` as written for affinity. */
const RECENT_OPTIONS = /-m recent --name (\S+)((?: --(?:set|rcheck|reap|seconds \d+))+)/;

/** Moves the list's name behind the actions, and adds the defaults. */
function withRecent(text: string, family: IpFamily): string {
  const mask = family === "IPv4" ? "255.255.255.255" : "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
  return text.replace(
    RECENT_OPTIONS,
    (_, name: string, doing: string) => `-m recent${doing} --name ${name} --mask ${mask} --rsource`,
  );
}

function printed(option: string): string {
  if (option.startsWith(COMMENT)) {
    const value = option.slice(COMMENT.length);
    return value === QUOTED || !/[^\w-]/.test(value) ? option : `${COMMENT}"${value}"`;
  }
  if (!option.startsWith(PROBABILITY)) return option;
  const steps = Math.round(Number(option.slice(PROBABILITY.length)) * PROBABILITY_STEPS);
  return PROBABILITY + (steps / PROBABILITY_STEPS).toFixed(11);
}

/** A rule's words, with {@linkcode QUOTED} for the quoted one. Null: it has more than one, which planners do not write. */
function withoutQuoted(rule: string): { readonly words: string; readonly quoted: string } | null {
  const quote = rule.indexOf('"');
  if (quote < 0) return { words: rule, quoted: "" };
  const end = rule.indexOf('"', quote + 1);
  // Nor are there escaped quotes within it.
  if (end < 0 || rule.includes('"', end + 1) || rule.includes("\\")) return null;
  return { words: rule.slice(0, quote) + QUOTED + rule.slice(end + 1), quoted: rule.slice(quote + 1, end) };
}

/** Each option with its values, and with its `!`. */
function optionsOf(words: string): string[] {
  const options: string[] = [];
  for (const word of words.split(" ")) {
    const last = options.length - 1;
    const isValue = last >= 0 && (word.charCodeAt(0) !== MINUS || options[last] === "!") && word !== "!";
    if (isValue) options[last] += ` ${word}`;
    else options.push(word);
  }
  return options;
}

const MINUS = "-".charCodeAt(0);

/**
 * True if the chain's rules are the wanted ones, in their order.
 *
 * @param found as iptables printed them; undefined: there is no such chain
 * @param lines wanted rules, each with `-A CHAIN `
 */
export function holdsLines(
  found: SavedChain | undefined,
  lines: readonly string[],
  family: IpFamily,
): boolean {
  if (found === undefined) return false;
  const printed = lines.map((line) => {
    const blank = line.indexOf(" ", 3);
    return `${line.slice(0, blank)} ${printedRule(line.slice(blank + 1), family)}`;
  });
  if (found.holdsText?.(printed.join("\n")) === true) return true;
  if (found.rules.length !== lines.length) return false;
  return found.rules.every((rule, at) => sameRule(rule, lines[at]!.slice(lines[at]!.indexOf(" ", 3) + 1)));
}

/**
 * True if the chain's rules are the wanted ones, in any order.
 *
 * @param found rules as iptables printed them, each without `-A CHAIN `
 */
export function holdsInAnyOrder(
  found: readonly string[],
  wanted: readonly string[],
  family: IpFamily,
): boolean {
  if (found.length !== wanted.length) return false;
  const missing = new Map<string, string[]>();
  for (const rule of wanted) {
    const text = printedRule(rule, family);
    const alike = missing.get(text);
    if (alike === undefined) missing.set(text, [rule]);
    else alike.push(rule);
  }
  const others = found.filter((rule) => missing.get(rule)?.pop() === undefined);
  // Rules that a program prints in another form.
  const rest = [...missing.values()].flat().map(canonicalRuleText).sort();
  return others.map((rule) => readableRuleText(rule) ?? "").sort().join("\n") === rest.join("\n");
}

function sameRule(found: string, wanted: string): boolean {
  return readableRuleText(found) === canonicalRuleText(wanted);
}
