/**
 * Program texts with replaced parts, and the mapping of their positions.
 *
 * @module
 */

/** Yields the text for a match; arguments are the match and its groups, as for `String.replace`. */
export type Replacement = (found: string, ...groups: string[]) => string;

/** A text with replaced parts; no replacement adds lines. */
export interface ReplacedText {
  readonly text: string;
  /** New column of a position (both from 0 on) in the former text. */
  readonly columnNow: (line: number, column: number) => number;
  /** Former column of a position now. */
  readonly columnBefore: (line: number, column: number) => number;
}

interface Change {
  /** Column at which the former part began. */
  readonly at: number;
  readonly grownBy: number;
}

/** Replaces matches of a pattern (with flag `g`), line by line. */
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
