/**
 * Answers: the forms that the servers share, and how a `Response` becomes bytes of HTTP/1.
 *
 * @module
 */
import { escapedJson } from "../text/quote.ts";

/** Properties of a request that decide the form of its answer. */
export interface AnswerForm {
  /** The client asked for the headers alone. */
  readonly isHead: boolean;
  readonly isHttp10: boolean;
  /** The connection may go on. */
  readonly keepAlive: boolean;
}

/** Writes all of the bytes; `left` more are ready. */
export type Write = (bytes: Uint8Array, left: number) => Promise<void>;

const REASONS: Readonly<Record<number, string>> = {
  200: "OK",
  302: "Found",
  304: "Not Modified",
  400: "Bad Request",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  411: "Length Required",
  413: "Request Entity Too Large",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported",
};
const END_OF_CHUNK = "\r\n";
const LAST_CHUNK = "0\r\n\r\n";
/** Most bytes of one write, so that a slow reader differs from one that does not read. */
const PIECE_BYTES = 64 * 1024;

const encoder = new TextEncoder();

/**
 * Writes an answer. A body that is one piece is sent with its length, any other in chunks, or to the end of the connection if
 * the client knows no chunks.
 *
 * @returns whether the connection may go on
 * @throws {Error} if the connection breaks, or the body fails
 */
export async function writeAnswer(response: Response, form: AnswerForm, write: Write): Promise<boolean> {
  const pieces = response.body?.getReader();
  try {
    const first = await pieces?.read();
    const second = first === undefined || first.done ? undefined : await pieces?.read();
    const isWhole = second === undefined || second.done;
    const body = first?.value ?? new Uint8Array(0);
    const isChunked = !isWhole && !form.isHttp10;
    const keepAlive = form.keepAlive && (isWhole || isChunked);
    const head = headText(response, isWhole ? body.length : null, { ...form, keepAlive });
    if (form.isHead) await write(encoder.encode(head), 0);
    else if (isWhole || pieces === undefined) await writePieces(encoder.encode(head), body, write);
    else await writeStream(head, [body, second.value], pieces, isChunked, write);
    return keepAlive;
  } finally {
    // The client is gone: the rest is not made.
    await pieces?.cancel();
  }
}

async function writeStream(
  head: string,
  begun: readonly Uint8Array[],
  rest: ReadableStreamDefaultReader<Uint8Array>,
  isChunked: boolean,
  write: Write,
): Promise<void> {
  const left = [...begun];
  const next = async (): Promise<Uint8Array | undefined> => left.shift() ?? (await rest.read()).value;
  let before = head;
  for (let piece = await next(); piece !== undefined; piece = await next()) {
    // A chunk of no bytes would end the body.
    if (piece.length === 0) continue;
    await writePieces(encoder.encode(isChunked ? before + chunkLine(piece) : before), piece, write);
    before = isChunked ? END_OF_CHUNK : "";
  }
  await write(encoder.encode(isChunked ? before + LAST_CHUNK : before), 0);
}

function chunkLine(piece: Uint8Array): string {
  return `${piece.length.toString(16)}\r\n`;
}

/** Writes a body in pieces, the head with the first one: as two packets they would wait for one another. */
async function writePieces(before: Uint8Array, body: Uint8Array, write: Write): Promise<void> {
  const first = body.subarray(0, PIECE_BYTES);
  const joined = new Uint8Array(before.length + first.length);
  joined.set(before);
  joined.set(first, before.length);
  await write(joined, body.length - first.length);
  for (let at = PIECE_BYTES; at < body.length; at += PIECE_BYTES) {
    const piece = body.subarray(at, at + PIECE_BYTES);
    await write(piece, body.length - at - piece.length);
  }
}

function headText(response: Response, length: number | null, form: AnswerForm): string {
  const lines = [`HTTP/1.1 ${response.status} ${REASONS[response.status] ?? response.statusText}`];
  for (const [name, value] of response.headers) lines.push(`${headerName(name)}: ${value}`);
  lines.push(`Date: ${new Date().toUTCString()}`);
  // A length would be that of the answer that the client has already.
  if (response.status === 304) return endOfHead(lines, form);
  if (length !== null) lines.push(`Content-Length: ${length}`);
  else if (!form.isHttp10) lines.push("Transfer-Encoding: chunked");
  return endOfHead(lines, form);
}

function endOfHead(lines: string[], form: AnswerForm): string {
  if (!form.keepAlive) lines.push("Connection: close");
  else if (form.isHttp10) lines.push("Connection: keep-alive");
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** Name of a header as Go's servers, and so kube-proxy's, write it: `Content-Type`. */
function headerName(name: string): string {
  return name.replace(/(^|-)[a-z]/g, (letters) => letters.toUpperCase());
}

interface AnswerInit {
  /** @default {200} */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Plain text, exactly as given. */
export function textAnswer(body: string, init: AnswerInit = {}): Response {
  return answerOf("text/plain; charset=utf-8", body, init);
}

/** Answer with JSON text, with control characters escaped that a terminal would obey. */
export function jsonAnswer(body: string, init: AnswerInit = {}): Response {
  return answerOf("application/json", escapedJson(body), init);
}

/** An answer with its type, which no browser is to guess. */
export function answerOf(
  type: string,
  body: string | ReadableStream<Uint8Array>,
  { status = 200, headers = {} }: AnswerInit = {},
): Response {
  return new Response(body, {
    status,
    headers: { "content-type": type, "x-content-type-options": "nosniff", ...headers },
  });
}

/** Answer of Go's servers, and so kube-proxy's, for a path they do not have. */
export function notFoundAnswer(): Response {
  return textAnswer("404 page not found\n", { status: 404 });
}
