/**
 * "Did you mean" for the command line.
 *
 * @module
 */
import { closestWord } from "../config/suggest.ts";

/** The word of `known` that `given` was probably meant to be, or undefined. */
export function suggestion(given: string, known: readonly string[]): string | undefined {
  const typed = given.toLowerCase().replaceAll("_", "-");
  // Too short to tell a slip from another word.
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
