/**
 * Splits a stream of bytes into lines, as many at a time as have arrived.
 *
 * @module
 */

const NEWLINE = 10;

/** Yields the complete lines of each piece that arrives, without blank ones; related events so stay together. */
export async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  let rest: Uint8Array[] = [];
  for await (const piece of body) {
    const end = piece.lastIndexOf(NEWLINE);
    if (end === -1) {
      rest.push(piece);
      continue;
    }
    const lines = decoder.decode(concat([...rest, piece.subarray(0, end)])).split("\n").filter((line) =>
      line !== ""
    );
    rest = end + 1 < piece.length ? [piece.subarray(end + 1)] : [];
    if (lines.length > 0) yield lines;
  }
  // A line without its end was cut off with the connection: half an object is not an event.
}

function concat(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 1 && pieces[0] !== undefined) return pieces[0];
  const whole = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let offset = 0;
  for (const piece of pieces) {
    whole.set(piece, offset);
    offset += piece.length;
  }
  return whole;
}
