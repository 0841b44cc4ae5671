/**
 * An HTTP answer and the ways to read its body: as one text, or piece by piece.
 *
 * @module
 */
import { GrowingBytes } from "../../text/bytes.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";

/** The server, or something on the way to it, answered, but not with what was asked for. */
export class AnswerError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "AnswerError";
  }
}

/** An answer whose body may still be arriving. */
export interface HttpAnswer {
  readonly status: number;
  /** Seconds to wait, from `Retry-After`; null if there is none. */
  readonly retryAfterSeconds: number | null;
  /** Value of the header; `""` if there is none. */
  readonly contentType: string;
  /** The server's clock, as in the header; `""` or absent if there is none. */
  readonly date?: string;
  readonly body: ReadableStream<Uint8Array>;
  /** Gets the size of the body once all of it has been read. */
  readonly onRead?: (bytes: number) => void;
}

/** The part of an answer that is read to its end. */
export type AnswerBody = Pick<HttpAnswer, "body" | "onRead">;

/** The answer with these headers: `header` yields the value of one, null if it is not there. */
export function answerOf(
  status: number,
  header: (name: string) => string | null,
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
): HttpAnswer {
  return {
    status,
    retryAfterSeconds: retryAfterSeconds(header("retry-after")),
    contentType: header("content-type") ?? "",
    date: header("date") ?? "",
    body: unpacked(body, header("content-encoding") ?? ""),
  };
}

/** Seconds in a `Retry-After` header; null if it is absent or a date, which no API server sends. */
function retryAfterSeconds(header: string | null): number | null {
  return header !== null && /^\d+$/.test(header) ? Number(header) : null;
}

/** A page of 500 objects, or all of 100,000 where pages do not work, is less; an endless answer must not fill the memory. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Limit for one event: far above what the store of an API server takes as one object. */
export const MAX_EVENT_BYTES: number = 16 * 1024 * 1024;
/** Most bytes read of a refusal: its message is all that is needed. */
const MAX_REFUSAL_BYTES = 64 * 1024;

/** Signal that ends the reading of a body, and callback for its progress. */
export interface Reading {
  /** Ends the connection when aborted. */
  readonly signal: AbortSignal;
  /** Notes that something arrived. */
  note(): void;
}

/**
 * The whole body as text.
 *
 * @throws {AnswerError} if it is larger than any answer should be
 * @throws what `signal` was aborted with, or the error of the connection
 */
export async function readText(
  answer: AnswerBody,
  reading: Reading,
  maxBytes: number = MAX_BYTES,
): Promise<string> {
  const bytes = new GrowingBytes();
  for await (const piece of readPieces(answer, reading, maxBytes)) bytes.add(piece);
  return new TextDecoder().decode(bytes.view());
}

/**
 * The whole body, piece by piece, each valid until the next one is asked for.
 *
 * @throws {AnswerError} if it is larger than any answer should be
 * @throws what `signal` was aborted with, or the error of the connection
 */
export async function* readPieces(
  { body, onRead }: AnswerBody,
  reading: Reading,
  maxBytes: number = MAX_BYTES,
): AsyncGenerator<Uint8Array> {
  let length = 0;
  for await (const piece of piecesOf(body, reading)) {
    length += piece.length;
    if (length > maxBytes) throw new AnswerError(`The answer is larger than ${maxBytes} bytes`);
    yield piece;
  }
  onRead?.(length);
}

/**
 * The body of a refusal; no more than its beginning if it does not end.
 *
 * @throws what `signal` was aborted with, or the error of the connection
 */
export async function readRefusal(
  { body, onRead }: AnswerBody,
  reading: Reading,
): Promise<Uint8Array> {
  const bytes = new GrowingBytes();
  for await (const piece of piecesOf(body, reading)) {
    bytes.add(piece.subarray(0, MAX_REFUSAL_BYTES - bytes.length));
    if (bytes.length === MAX_REFUSAL_BYTES) break;
  }
  onRead?.(bytes.length);
  return bytes.view();
}

/** First size of the buffer: most events are smaller. */
const FIRST_PIECE_BYTES = 4 * 1024;
const MOST_PIECE_BYTES = 64 * 1024;

/**
 * The next piece of a body; undefined at its end. The memory is used again for the one after it: on its own the runtime takes 64 KiB
 * for each event of a watch, which stay until garbage is collected.
 */
function pieceReader(
  body: ReadableStream<Uint8Array>,
): { next: () => Promise<Uint8Array | undefined>; cancel: () => Promise<void> } {
  const reader = byteReader(body);
  if (reader === null) {
    const plain = body.getReader();
    return { next: async () => (await plain.read()).value, cancel: () => plain.cancel() };
  }
  let buffer = new ArrayBuffer(FIRST_PIECE_BYTES);
  const next = async (): Promise<Uint8Array | undefined> => {
    const { value, done } = await reader.read(new Uint8Array(buffer));
    if (value === undefined || done) return undefined;
    buffer = bufferAfter(value);
    return value;
  };
  return { next, cancel: () => reader.cancel() };
}

/** Null for a body that cannot fill a given buffer: one of kproxy's own TLS. */
function byteReader(body: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | null {
  try {
    return body.getReader({ mode: "byob" });
  } catch (error) {
    if (body.locked || !(error instanceof TypeError)) throw error;
    return null;
  }
}

/** Buffer for the next piece: larger after a piece that filled its own, small again after one that hardly used it. */
function bufferAfter({ byteLength, buffer }: Uint8Array<ArrayBuffer>): ArrayBuffer {
  const room = buffer.byteLength;
  if (byteLength === room && room < MOST_PIECE_BYTES) return new ArrayBuffer(4 * room);
  if (byteLength < room / 16 && room > FIRST_PIECE_BYTES) return new ArrayBuffer(FIRST_PIECE_BYTES);
  return buffer;
}

/**
 * The pieces of a body as they arrive, each valid until the next one is asked for.
 *
 * Cancels it itself when aborted: once the garbage collector has taken a Response away, the signal given to fetch no
 * longer reaches its body (Deno 2.9.6), and a silent connection would never be left.
 */
export async function* piecesOf(
  body: ReadableStream<Uint8Array>,
  { signal, note }: Reading,
): AsyncGenerator<Uint8Array> {
  const reader = pieceReader(body);
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
  if (signal.aborted) await leave();
  try {
    for (;;) {
      signal.throwIfAborted();
      const piece = await reader.next();
      if (piece === undefined) break;
      note();
      yield piece;
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

type Bytes = Uint8Array<ArrayBuffer>;

/** Lists of the API are packed to a tenth or a thirtieth; a bomb, to a thousandth. */
const MAX_RATIO = 100;
/** Bodies of this size are not checked. */
const ALWAYS_BYTES = 1024 * 1024;

/**
 * The body as it was before it was packed in the ways that `encoding` names, as the header `Content-Encoding` does; `""`
 * for none. Other encodings than gzip are not read: reading them fails with an {@linkcode AnswerError}, as it does
 * where it becomes a hundred times as long.
 */
export function unpacked(body: ReadableStream<Bytes>, encoding: string): ReadableStream<Bytes> {
  const way = encoding.trim().toLowerCase();
  if (way === "" || way === "identity") return body;
  if (way !== "gzip" && way !== "x-gzip") {
    return body.pipeThrough(failing(`The answer is packed by ${way}, which was not asked for`));
  }
  let packedBytes = 0;
  let bytes = 0;
  const counted = new TransformStream<Bytes, Bytes>({
    transform(piece, controller) {
      packedBytes += piece.length;
      controller.enqueue(piece);
    },
  });
  const bounded = new TransformStream<Bytes, Bytes>({
    transform(piece, controller) {
      bytes += piece.length;
      if (bytes > ALWAYS_BYTES && bytes > MAX_RATIO * packedBytes) {
        throw new AnswerError(`The answer is more than ${MAX_RATIO} times as long as it was packed`);
      }
      controller.enqueue(piece);
    },
  });
  return body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip")).pipeThrough(bounded);
}

function failing(message: string): TransformStream<Bytes, Bytes> {
  return new TransformStream({
    start(controller) {
      controller.error(new AnswerError(message));
    },
  });
}

/** Times of an {@linkcode IdleLimit}, in milliseconds; looked up whenever a time has passed. */
export interface IdleTimes {
  /** Longest silence: without a sign of life for so long the wait ends. */
  readonly idleMs: number;
  /**
   * Limit of the whole answer, whatever arrives: a server that sends a byte now and then must not hold us for ever.
   * @default {Infinity}
   */
  readonly wholeMs?: number;
}

/** Aborts its signal when nothing was noted for a time, or together with the signal it was given. */
export class IdleLimit implements Disposable {
  readonly signal: AbortSignal;
  /** Error if the signal was aborted for silence: the error of a cut-off request may not say so. */
  error: Error | undefined;
  readonly #from: string;
  readonly #clock: Clock;
  readonly #end = new AbortController();
  #counting = new AbortController();
  #heardMs = 0;

  /** `from` names the sender in the error. */
  constructor(times: IdleTimes, from: string, outer: AbortSignal, clock: Clock = systemClock) {
    this.signal = AbortSignal.any([outer, this.#end.signal]);
    this.#from = from;
    this.#clock = clock;
    this.changeTo(times);
  }

  /** Notes a sign of life. */
  readonly note = (): void => {
    this.#heardMs = this.#clock.nowMs();
  };

  /** Replaces the times, and counts from now on. */
  changeTo(times: IdleTimes): void {
    this.#counting.abort();
    this.#counting = new AbortController();
    this.note();
    void this.#expire(times, AbortSignal.any([this.signal, this.#counting.signal]));
  }

  [Symbol.dispose](): void {
    // The rest of an answer that is not read any more goes with its connection.
    this.#end.abort();
  }

  /** Waits with one timer at a time: a timer for each piece of a long answer would cost more than the piece. */
  async #expire(times: IdleTimes, signal: AbortSignal): Promise<void> {
    const startMs = this.#clock.nowMs();
    while (!signal.aborted) {
      const { idleMs, wholeMs = Infinity } = times;
      const nowMs = this.#clock.nowMs();
      const leftMs = Math.min(this.#heardMs + idleMs, startMs + wholeMs) - nowMs;
      if (leftMs > 0) {
        await this.#clock.sleep(leftMs, signal);
        continue;
      }
      this.error = new Error(
        nowMs - startMs >= wholeMs
          ? `What arrives from ${this.#from} is not complete after ${wholeMs / 1000} s`
          : `Nothing arrived from ${this.#from} for ${idleMs / 1000} s`,
      );
      this.#end.abort(this.error);
    }
  }
}
