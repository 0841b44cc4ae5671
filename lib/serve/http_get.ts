/**
 * One request over HTTP to a program on this machine; and which program has an address that a server wants, asked over HTTP too: that
 * needs no rights to look into other programs.
 *
 * @module
 */
import { joinHostPort, localHost } from "../model/ip.ts";
import { GrowingBytes } from "../text/bytes.ts";

/** Address of a server: an IP address and a port, or a Unix socket. */
export type HttpPlace =
  | { readonly host: string; readonly port: number }
  | { readonly socket: string };

/** A request, and the server that it goes to. */
export type HttpQuestion = HttpPlace & HttpRequest;

interface HttpRequest {
  /** @default {"GET"} */
  readonly method?: "GET" | "POST";
  /** Begins with `/`. */
  readonly path: string;
  /** Limit for the answer to begin, and then for each further piece of it, in milliseconds. */
  readonly limitMs: number;
  /** Limit for the whole answer, in milliseconds. */
  readonly wholeMs: number;
  /** Limit for the length of the answer, in bytes. */
  readonly maxBytes: number;
  /** Aborts the request. */
  readonly signal?: AbortSignal;
}

/** The beginning of an answer, and its pieces as they come. */
export interface HttpReply {
  readonly status: number;
  /** The first line and the headers. */
  readonly head: string;
  readonly body: AsyncIterable<Uint8Array<ArrayBuffer>>;
}

/** The address refuses connections. */
export class NoConnectionError extends Error {
  override readonly name = "NoConnectionError";
}

/** A program listens there, and answers too late, too much, or nothing that is HTTP. */
export class StrangeAnswerError extends Error {
  override readonly name = "StrangeAnswerError";
}

/** The program that listens there does not answer in time. */
export class LateAnswerError extends StrangeAnswerError {}

const MAX_HEAD_BYTES = 16 * 1024;
const PIECE_BYTES = 64 * 1024;
const HEAD_END = "\r\n\r\n";

/**
 * Sends a request, and hands its answer to `take` as it comes; then the connection is closed. By hand, because `fetch` would ask
 * a proxy that the environment names, and in HTTP/1.0, whose answers end with the connection.
 *
 * @throws {NoConnectionError} if there is no connection
 * @throws {StrangeAnswerError} if what comes is no answer, or `take` reads on and it ends too late or is too long
 */
export async function httpGet<Result>(
  question: HttpQuestion,
  take: (reply: HttpReply) => Promise<Result>,
): Promise<Result> {
  const { method = "GET", path } = question;
  using connection = new LimitedConnection(await connectTo(question), question);
  const host = "socket" in question ? "localhost" : joinHostPort(question.host, question.port);
  await connection.send(`${method} ${path} HTTP/1.0\r\nHost: ${host}\r\nAccept: */*\r\n\r\n`);
  const { rest, ...head } = await readHead(connection);
  const body = async function* (): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    if (rest.length > 0) yield rest;
    for (let piece = await connection.next(); piece !== null; piece = await connection.next()) yield piece;
  };
  return await take({ ...head, body: body() });
}

/** @throws {NoConnectionError} */
async function connectTo(question: HttpQuestion): Promise<Deno.Conn> {
  try {
    // The kernel accepts, or refuses, a connection to a Unix socket at once.
    if ("socket" in question) return await Deno.connect({ transport: "unix", path: question.socket });
    const { host: hostname, port, limitMs, signal } = question;
    const limit = AbortSignal.timeout(limitMs);
    const ends = signal === undefined ? limit : AbortSignal.any([signal, limit]);
    return await Deno.connect({ hostname, port, signal: ends });
  } catch (cause) {
    throw new NoConnectionError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

/** The whole body as text. */
export async function textOf({ body }: HttpReply): Promise<string> {
  return await new Response(ReadableStream.from(body)).text();
}

/** The beginning of the body as text: the answer may be endless. */
export async function beginningOf({ body }: HttpReply, maxBytes: number): Promise<string> {
  const bytes = new GrowingBytes();
  for await (const piece of body) {
    bytes.add(piece.subarray(0, maxBytes - bytes.length));
    if (bytes.length === maxBytes) break;
  }
  return new TextDecoder().decode(bytes.view());
}

/** A connection that is closed if a piece of the answer, or the whole, takes too long or is too large. */
class LimitedConnection implements Disposable {
  readonly #connection: Deno.Conn;
  readonly #question: HttpQuestion;
  readonly #startMs = performance.now();
  readonly #close = (): void => this[Symbol.dispose]();
  #total = 0;
  #isClosed = false;

  constructor(connection: Deno.Conn, question: HttpQuestion) {
    this.#connection = connection;
    this.#question = question;
    question.signal?.addEventListener("abort", this.#close, { once: true });
  }

  async send(text: string): Promise<void> {
    for (let bytes = new TextEncoder().encode(text); bytes.length > 0;) {
      bytes = bytes.subarray(await this.#within(this.#connection.write(bytes)));
    }
  }

  /** The next piece; null at the end. */
  async next(): Promise<Uint8Array<ArrayBuffer> | null> {
    const buffer = new Uint8Array(PIECE_BYTES);
    const count = await this.#within(this.#connection.read(buffer));
    this.#total += count ?? 0;
    if (this.#total > this.#question.maxBytes) throw new StrangeAnswerError("its answer is too long");
    return count === null ? null : buffer.subarray(0, count);
  }

  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#question.signal?.removeEventListener("abort", this.#close);
    this.#connection.close();
  }

  /** Awaits `work` within the limits; at their end the connection is closed, which ends `work`. */
  async #within<Result>(work: Promise<Result>): Promise<Result> {
    const { limitMs, wholeMs } = this.#question;
    const leftMs = Math.max(0, wholeMs - (performance.now() - this.#startMs));
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#close();
    }, Math.min(limitMs, leftMs));
    try {
      return await work;
    } catch (cause) {
      if (!isLate) throw new StrangeAnswerError("it cuts the connection", { cause });
      const seconds = (leftMs <= limitMs ? wholeMs : limitMs) / 1000;
      throw new LateAnswerError(`it does not answer within ${seconds} s`, { cause });
    } finally {
      clearTimeout(timer);
    }
  }
}

async function readHead(
  connection: LimitedConnection,
): Promise<Pick<HttpReply, "status" | "head"> & { readonly rest: Uint8Array<ArrayBuffer> }> {
  // One character for each byte, so that places in the text are those in the bytes.
  const decoder = new TextDecoder("latin1");
  const bytes = new GrowingBytes();
  for (;;) {
    const text = decoder.decode(bytes.view().subarray(0, MAX_HEAD_BYTES));
    const end = text.indexOf(HEAD_END);
    const status = /^HTTP\/1\.[01] (\d{3})\b/.exec(text)?.[1];
    if (end >= 0 && status !== undefined) {
      const rest = bytes.view().slice(end + HEAD_END.length);
      return { status: Number(status), head: text.slice(0, end), rest };
    }
    if (end >= 0 || bytes.length > MAX_HEAD_BYTES) throw new StrangeAnswerError("it does not speak HTTP");
    const piece = await connection.next();
    if (piece === null) {
      throw new StrangeAnswerError(bytes.length === 0 ? "it does not answer" : "it does not speak HTTP");
    }
    bytes.add(piece);
  }
}

/** Limit of all requests: a program on the same node answers at once, or not at all; on a busy one, too. */
const LIMIT_MS = 5_000;
/** Limit of one request: that of all ends it sooner. */
const QUESTION_MS = 60_000;
/** Most bytes of an answer that are read: its beginning is enough. */
const MAX_BYTES = 8 * 1024;
const MAX_NAME_LENGTH = 60;

const MODE_REGEXP = /^(iptables|ipvs|nftables|userspace|kernelspace)\s*$/;
const SERVER_REGEXP = /^server:[ \t]*([\x21-\x7e][\x20-\x7e]*)/im;

/** An address that another program listens on. */
export interface HeldAddress {
  /** An IP address, also a wildcard. */
  readonly host: string;
  readonly port: number;
  /** Aborts the requests. */
  readonly signal: AbortSignal;
  /** Limit for all requests together, in milliseconds. @default {5000} */
  readonly limitMs?: number;
}

/**
 * The program that listens there, e.g. `another proxy answers there: mode iptables`; `""` if it does not say. Never rejects.
 *
 * A proxy is known by `/proxyMode` at the port of its metrics, and by the times in `/healthz` at that of its health.
 */
export async function addressHolder(
  { host, port, signal, limitMs = LIMIT_MS }: HeldAddress,
): Promise<string> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
  const ask = (path: string): Promise<Answer | null> => askFor(path, localHost(host), port, limit);
  const mode = await ask("/proxyMode");
  if (mode === null) return "";
  const name = MODE_REGEXP.exec(mode.body)?.[1];
  if (mode.status === 200 && name !== undefined) return `another proxy answers there: mode ${name}`;
  const health = await ask("/healthz");
  if (isProxyHealth(health?.body ?? "")) return "another proxy answers there";
  const server = mode.server || health?.server || "";
  return `another HTTP server answers there${server === "" ? "" : `: ${server}`}`;
}

interface Answer {
  readonly status: number;
  /** The header `Server`, cut. */
  readonly server: string;
  readonly body: string;
}

/** The program's answer to a GET; null if it is not HTTP. */
async function askFor(path: string, host: string, port: number, signal: AbortSignal): Promise<Answer | null> {
  const limits = { limitMs: QUESTION_MS, wholeMs: QUESTION_MS, maxBytes: Infinity, signal };
  try {
    return await httpGet({ host, port, path, ...limits }, async (reply) => {
      const server = SERVER_REGEXP.exec(reply.head)?.[1] ?? "";
      return {
        status: reply.status,
        server: server.trim().slice(0, MAX_NAME_LENGTH),
        body: await beginningOf(reply, MAX_BYTES),
      };
    });
  } catch (error) {
    // Refused, cut off or given up: the program does not say what it is.
    if (error instanceof NoConnectionError || error instanceof StrangeAnswerError) return null;
    throw error;
  }
}

function isProxyHealth(body: string): boolean {
  return /"lastUpdated"\s*:/.test(body) && /"currentTime"\s*:/.test(body);
}
