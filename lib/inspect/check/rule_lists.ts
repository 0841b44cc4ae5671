/**
 * Compares the rules of one chain: which are missing, which are too many, whether they stand in another order.
 *
 * @module
 */
import type { Difference } from "./difference.ts";

/** One chain, as it should be and as it is. */
export interface ChainPair {
  readonly place: string;
  /** As written. */
  readonly wanted: readonly string[];
  /** As read; undefined: there is no such chain. */
  readonly found: readonly string[] | undefined;
  /** Equal for a rule as written and as read. @default the text itself */
  readonly textOf?: (rule: string) => string;
  /** Equal only for rules that are equal by `textOf`, and cheaper. */
  readonly quickOf?: (rule: string) => string;
  /** True: others may write there, too, so that nothing is too much. */
  readonly isShared?: boolean;
}

/** Null if the chain is as it should be. */
export function chainDifference({ place, wanted, found, ...how }: ChainPair): Difference | null {
  const { textOf = (rule) => rule, quickOf, isShared = false } = how;
  if (found === undefined) return { kind: "missing", place, cause: "the chain is gone", wanted, found: [] };
  if (isSame(wanted, found)) return null;
  if (
    quickOf !== undefined && wanted.length === found.length &&
    isSame(wanted.map(quickOf), found.map(quickOf))
  ) return null;
  const [wantedTexts, foundTexts] = [wanted.map(textOf), found.map(textOf)];
  if (isSame(wantedTexts, foundTexts)) return null;
  const missing = without(wanted, wantedTexts, foundTexts);
  const surplus = isShared ? [] : without(found, foundTexts, wantedTexts);
  if (missing.length === 0 && surplus.length === 0) {
    const ours = new Set(wantedTexts);
    const standing = foundTexts.filter((text) => ours.has(text));
    if (isShared && isSubsequence(wantedTexts, standing)) return null;
    return { kind: "order", place, cause: "the rules stand in another order", wanted, found };
  }
  if (found.length === 0) {
    return { kind: "missing", place, cause: "the chain is empty", wanted, found };
  }
  return { ...listDifference(missing, surplus, "rule"), place };
}

/** What is wrong where some are missing and some too many. */
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

/** What differs in a chain of the kernel's own, in words for the jumps from it; what else stands there is others'. */
export function jumpDifference(difference: Difference): Difference {
  const { wanted } = difference;
  const cause = wanted.length === 1 ? "the jump is missing" : `${wanted.length} jumps are missing`;
  return { ...difference, cause, found: [] };
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

/** Those of `list` that the others have less often; `texts` are what they compare by. */
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
