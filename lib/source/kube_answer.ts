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

/** What reading a body heeds and tells. */
export interface Reading {
  /** Ends the connection when aborted. */
  readonly signal: AbortSignal;
  /** Something arrived. */
  note(): void;
}

/**
 * The whole body as text.
 *
 * @throws what `signal` was aborted with, or the error of the connection
 */
export async function readText(body: ReadableStream<Uint8Array>, reading: Reading): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(body, reading)) pieces.push(piece);
  return new TextDecoder().decode(concat(pieces));
}

/**
 * Yields the complete lines of each piece that arrives, without blank ones: what was sent together stays together.
 * A line that the connection cut off is dropped, because half an object is not an event.
 *
 * @throws what `signal` was aborted with, or the error of the connection
 */
export async function* readLines(
  body: ReadableStream<Uint8Array>,
  reading: Reading,
): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  let rest: Uint8Array[] = [];
  for await (const piece of piecesOf(body, reading)) {
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

/**
 * Cancels the body itself when aborted: once the garbage collector has taken a Response away, the signal given to fetch no
 * longer reaches its body (Deno 2.9.6), and a silent connection would never be left.
 */
async function* piecesOf(
  body: ReadableStream<Uint8Array>,
  { signal, note }: Reading,
): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  let open = true;
  const leave = async (): Promise<void> => {
    if (!open) return;
    open = false;
    try {
      await reader.cancel();
    } catch (error) {
      // A body that failed rejects its cancelling with the same error, which read() has thrown.
      if (!signal.aborted) throw error;
    }
  };
  signal.addEventListener("abort", leave, { once: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) break;
      note();
      yield value;
    }
    signal.throwIfAborted();
    open = false;
  } catch (error) {
    open = false;
    throw error;
  } finally {
    signal.removeEventListener("abort", leave);
    await leave();
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
