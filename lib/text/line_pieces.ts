/**
 * Long texts piece by piece, so that a search can yield to other work.
 *
 * @module
 */

/** Some milliseconds of work for a regular expression. */
const PIECE_CHARACTERS = 2 ** 20;

/** Pieces of whole lines, each with its offset. Only one line may be longer than a piece. */
export function* linePieces(
  text: string,
  size: number = PIECE_CHARACTERS,
): Generator<readonly [offset: number, piece: string]> {
  for (let start = 0; start < text.length;) {
    const newline = start + size >= text.length ? -1 : text.indexOf("\n", start + size);
    const end = newline < 0 ? text.length : newline + 1;
    yield [start, text.slice(start, end)];
    start = end;
  }
}
