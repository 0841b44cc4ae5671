/**
 * Lines of a text: the first one, how many there are, and on which one an offset is.
 *
 * @module
 */

/** Up to the first line end. */
export function firstLine(text: string): string {
  const end = text.indexOf("\n");
  return end < 0 ? text : text.slice(0, end);
}

/** How many line ends there are before the offset `end`. */
export function countLines(text: string, end = text.length): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0 && at < end; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

/** Where the lines of a text begin. Lines are counted from 0. */
export class LineStarts {
  readonly #starts = [0];

  /** Those of a whole text. */
  static of(text: string): LineStarts {
    const lines = new LineStarts();
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines.add(at + 1);
    return lines;
  }

  /** The next line begins at this offset. Bound, so that it can be handed over. */
  readonly add = (offset: number): void => {
    this.#starts.push(offset);
  };

  /** Where a line begins; undefined if there are not so many. */
  startOf(line: number): number | undefined {
    return this.#starts[line];
  }

  /** The line that an offset is on. */
  lineAt(offset: number): number {
    let low = 0;
    let high = this.#starts.length;
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (this.#starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low;
  }
}
