/**
 * Stand-in for `jsr:@std/text/closest-string`, for builders that cannot reach JSR. Same names and signatures as the real
 * package; between words that are equally near, the first one wins, as there.
 *
 * @module
 */

/** Options of {@linkcode closestString}. */
export interface ClosestStringOptions {
  /** Whether upper and lower case differ. */
  caseSensitive?: boolean;
  /** Measures how far two words are apart. By default Levenshtein's edit distance. */
  compareFn?: (a: string, b: string) => number;
}

/**
 * The word nearest to `givenWord`.
 *
 * @throws {TypeError} if there is no word to choose from
 */
export function closestString(
  givenWord: string,
  possibleWords: ReadonlyArray<string>,
  options?: ClosestStringOptions,
): string {
  const [first, ...rest] = possibleWords;
  if (first === undefined) {
    throw new TypeError("Cannot find the closest string: expected at least one possible word");
  }
  const { caseSensitive = false, compareFn = editDistance } = options ?? {};
  const fold = (word: string): string => caseSensitive ? word : word.toLowerCase();
  const wanted = fold(givenWord);
  let nearest = first;
  let shortest = compareFn(wanted, fold(first));
  for (const word of rest) {
    const distance = compareFn(wanted, fold(word));
    if (distance < shortest) [nearest, shortest] = [word, distance];
  }
  return nearest;
}

/** Levenshtein's distance over code points, one row at a time. */
function editDistance(a: string, b: string): number {
  const left = [...a];
  const right = [...b];
  let row = right.map((_, index) => index + 1);
  for (const [i, letter] of left.entries()) {
    let diagonal = i;
    let before = i + 1;
    row = row.map((above, j) => {
      const cost = Math.min(above + 1, before + 1, diagonal + (right[j] === letter ? 0 : 1));
      diagonal = above;
      before = cost;
      return cost;
    });
  }
  return row.at(-1) ?? left.length;
}
