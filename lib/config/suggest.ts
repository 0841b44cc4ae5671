/**
 * "Did you mean" for names in configurations, objects and on the command line.
 *
 * @module
 */
import { closestString } from "@std/text/closest-string";

/** The candidate that a mistyped word most likely stands for, upper and lower case alike; undefined if none is near. */
export function closestWord(word: string, candidates: readonly string[]): string | undefined {
  if (word === "") return undefined;
  // Two letters the wrong way round are one slip, though two edits.
  const swapped = candidates.find((candidate) => isSwap(word.toLowerCase(), candidate.toLowerCase()));
  if (swapped !== undefined) return swapped;
  const mayDiffer = Math.max(word.length > 4 ? 2 : 1, Math.floor(word.length / 4));
  // Comparing takes the product of the lengths, and what was written may be megabytes long.
  const near = candidates.filter(({ length }) => Math.abs(length - word.length) <= mayDiffer);
  if (near.length === 0) return undefined;
  // A word that is one edit too far away, first in the list, wins against every candidate that is no nearer.
  const tooFar = word + "\0".repeat(mayDiffer + 1);
  const nearest = closestString(word, [tooFar, ...near]);
  return nearest === tooFar ? undefined : nearest;
}

/** True if the words differ only in two neighbouring letters that have changed places. */
function isSwap(word: string, other: string): boolean {
  if (word.length !== other.length) return false;
  const at = [...word].findIndex((letter, index) => letter !== other[index]);
  return at >= 0 && word[at] === other[at + 1] &&
    word[at + 1] === other[at] &&
    word.slice(at + 2) === other.slice(at + 2);
}

/** The word of `known` that `given` on a command line was probably meant to be, or undefined. */
export function suggestion(given: string, known: readonly string[]): string | undefined {
  const typed = given.toLowerCase().replaceAll("_", "-");
  // Too short to distinguish a typing mistake from another word.
  if (typed.length < 3) return undefined;
  const nearest = closestWord(typed, known);
  if (nearest !== undefined) return nearest;
  // A word left unfinished, e.g. `--conntrack-max-per`.
  return typed.length < 4 ? undefined : known.find((word) => word.toLowerCase().startsWith(typed));
}

/** `: did you mean "x"?`, or nothing. `show` dresses the word, e.g. with dashes. */
export function didYouMean(
  given: string,
  known: readonly string[],
  show: (word: string) => string = (word) => word,
): string {
  const word = suggestion(given, known);
  return word === undefined ? "" : `: did you mean "${show(word)}"?`;
}
