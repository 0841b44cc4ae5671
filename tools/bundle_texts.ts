/**
 * Texts of programs of which parts are replaced, and where their places are after that.
 *
 * @module
 */

/** What stands in the place of what was found: the match, then its groups as of `String.replace`. */
export type Replacement = (found: string, ...groups: string[]) => string;

/** A text whose parts were replaced, none of them by more lines. */
export interface ReplacedText {
  readonly text: string;
  /** Where a column of a line (both from 0 on) of the former text is now. */
  readonly columnNow: (line: number, column: number) => number;
  /** Where it was. */
  readonly columnBefore: (line: number, column: number) => number;
}

interface Change {
  /** Where the former part began. */
  readonly at: number;
  readonly grownBy: number;
}

/** Replaces what a pattern (with the flag `g`) finds, line by line. */
export function replaced(text: string, pattern: RegExp, replacement: Replacement): ReplacedText {
  const changes: Change[][] = [];
  const lines = text.split("\n").map((line, index) => {
    const made: Change[] = changes[index] = [];
    return line.replace(pattern, (found: string, ...rest: unknown[]) => {
      const groups = rest.slice(0, rest.findIndex((each) => typeof each === "number"));
      const now = replacement(found, ...groups as string[]);
      if (now !== found) {
        made.push({ at: rest[groups.length] as number, grownBy: now.length - found.length });
      }
      return now;
    });
  });
  const columnNow = (line: number, column: number): number =>
    (changes[line] ?? []).reduce((now, { at, grownBy }) => at < column ? now + grownBy : now, column);
  return {
    text: lines.join("\n"),
    columnNow,
    columnBefore: (line, column) =>
      (changes[line] ?? []).reduce(
        (before, { at, grownBy }) => at < before - grownBy ? before - grownBy : before,
        column,
      ),
  };
}
