/**
 * An HTTP answer and the ways to read its body: as one text, or line by line.
 *
 * @module
 */

/** An answer whose body may still be arriving. */
export interface HttpAnswer {
  readonly status: number;
  /** Seconds to wait, from `Retry-After`; null if there is none. */
  readonly retryAfterSeconds: number | null;
  readonly body: ReadableStream<Uint8Array>;
}

/** Seconds in a `Retry-After` header; null if it is absent or a date, which no API server sends. */
export function retryAfterSeconds(header: string | null): number | null {
  return header !== null && /^\d+$/.test(header) ? Number(header) : null;
}

const NEWLINE = 10;

/** The whole body as text. `onPiece` is told that something arrived. */
export async function readText(body: ReadableStream<Uint8Array>, onPiece: () => void): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of body) {
    onPiece();
    pieces.push(piece);
  }
  return new TextDecoder().decode(concat(pieces));
}

/**
 * Yields the complete lines of each piece that arrives, without blank ones: what was sent together stays together.
 * A line that the connection cut off is dropped, because half an object is not an event.
 */
export async function* readLines(
  body: ReadableStream<Uint8Array>,
  onPiece: () => void,
): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  let rest: Uint8Array[] = [];
  for await (const piece of body) {
    onPiece();
    const end = piece.lastIndexOf(NEWLINE);
    if (end === -1) {
      rest.push(piece);
      continue;
    }
    const text = decoder.decode(concat([...rest, piece.subarray(0, end)]));
    rest = end + 1 < piece.length ? [piece.subarray(end + 1)] : [];
    const lines = text.split("\n").filter((line) => line !== "");
    if (lines.length > 0) yield lines;
  }
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
