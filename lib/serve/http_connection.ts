/**
 * One client's connection: its requests, one after the other, each within a time.
 *
 * @module
 */
import { yieldToOthers } from "../kernel/clock.ts";
import { textAnswer, writeAnswer } from "./http_answer.ts";
import { BadRequest, type ParsedRequest, RequestReader } from "./http_request.ts";
import type { ConnectionPhase, ConnectionPool, PooledConnection } from "../kernel/connection_pool.ts";

/** How long a request may take from its first byte to its last; the first one from the beginning of the connection. */
const REQUEST_MS = 10_000;
/** How long a connection may wait for its next request: longer than Prometheus waits between two. */
const IDLE_MS = 180_000;
/** How long a client may leave a piece of an answer untaken, and how long a whole answer may take. */
const PIECE_MS = 15_000;
const ANSWER_MS = 300_000;
/** How long, and for how many bytes, a client may go on sending when its answer has ended the connection. */
const LINGER_MS = 1_000;
const LINGER_BYTES = 256 * 1024;
const READ_BYTES = 4096;

/** Answers a request of one connection; rejects for whatever is not the client's fault. */
export type Answer = (request: Request) => Promise<Response>;

/** The connection as the runtime gives it. */
export type Socket = Pick<Deno.TcpConn, "read" | "write" | "closeWrite" | "close">;

const encoder = new TextEncoder();
const CONTINUE = encoder.encode("HTTP/1.1 100 Continue\r\n\r\n");

/** Serves one connection. */
export class HttpConnection implements PooledConnection {
  readonly client: string;
  readonly #socket: Socket;
  readonly #pool: ConnectionPool;
  readonly #answer: Answer;
  readonly #reader = new RequestReader();
  /** Ends the wait for an answer. */
  #onClosed: () => void = () => {};
  #isClosed = false;
  #phase: ConnectionPhase = "waiting";
  #sinceMs: number;
  #deadlineMs: number;
  #unsentBytes = 0;

  constructor(socket: Socket, client: string, pool: ConnectionPool, answer: Answer) {
    this.#socket = socket;
    this.client = client;
    this.#pool = pool;
    this.#answer = answer;
    this.#sinceMs = pool.nowMs();
    this.#deadlineMs = this.#sinceMs + REQUEST_MS;
  }

  get phase(): ConnectionPhase {
    return this.#phase;
  }

  get sinceMs(): number {
    return this.#sinceMs;
  }

  get deadlineMs(): number {
    return this.#deadlineMs;
  }

  get unsentBytes(): number {
    return this.#unsentBytes;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#unsentBytes = 0;
    this.#onClosed();
    this.#socket.close();
  }

  /**
   * Answers until the client or the pool ends it; closes it.
   *
   * @throws whatever the handler throws, after an answer of status 500
   */
  async serve(): Promise<void> {
    try {
      // A pipelining client's next request is there already: reading it would not yield to other tasks.
      while (await this.#serveOne()) await yieldToOthers();
    } catch (error) {
      // That a connection breaks, or is closed from here, is its client's affair.
      if (!this.#isClosed && !isBroken(error)) throw error;
    } finally {
      this.#pool.leave(this);
      this.close();
    }
  }

  /** @returns true if another request may follow */
  async #serveOne(): Promise<boolean> {
    let request: ParsedRequest | null;
    let response: Response;
    try {
      request = await this.#nextRequest();
      if (request === null) return false;
      response = await this.#responseTo(request);
    } catch (error) {
      if (!(error instanceof BadRequest)) throw error;
      await this.#end(textAnswer(error.message, { status: error.status }));
      return false;
    }
    const { isHttp10, keepAlive } = request;
    return await this.#write(response, { isHead: request.method === "HEAD", isHttp10, keepAlive });
  }

  async #nextRequest(): Promise<ParsedRequest | null> {
    let hasBegun = this.#reader.hasBegun;
    for (;;) {
      const request = this.#reader.next();
      if (request !== null) return request;
      if (this.#reader.takeContinueDue()) await this.#writeAll(CONTINUE);
      const buffer = new Uint8Array(READ_BYTES);
      const count = await this.#socket.read(buffer);
      if (count === null) return null;
      if (!hasBegun) this.#deadlineMs = Math.min(this.#deadlineMs, this.#pool.nowMs() + REQUEST_MS);
      hasBegun = true;
      this.#reader.push(buffer.subarray(0, count));
    }
  }

  async #responseTo(request: ParsedRequest): Promise<Response> {
    if (this.#isClosed) throw new Deno.errors.Interrupted("closed before the answer was made");
    this.#enter("answering", Number.POSITIVE_INFINITY);
    const asked = webRequest(request);
    // A handler may never end; the connection does. One promise for all requests would keep every answer until then.
    const { promise, resolve, reject } = Promise.withResolvers<Response>();
    this.#onClosed = () => reject(new Deno.errors.Interrupted("closed while the answer was made"));
    this.#answer(asked).then(resolve, reject);
    try {
      return await promise;
    } finally {
      this.#onClosed = () => {};
    }
  }

  async #write(response: Response, form: Parameters<typeof writeAnswer>[1]): Promise<boolean> {
    this.#enter("writing", this.#pool.nowMs() + ANSWER_MS);
    const keepAlive = await writeAnswer(response, form, (bytes, left) => {
      this.#unsentBytes = bytes.length + left;
      if (!this.#pool.mayWrite(this)) throw new Deno.errors.Interrupted("too much is unsent");
      return this.#writeAll(bytes);
    });
    this.#unsentBytes = 0;
    if (keepAlive) {
      this.#enter("waiting", this.#pool.nowMs() + (this.#reader.hasBegun ? REQUEST_MS : IDLE_MS));
    } else await this.#linger();
    return keepAlive;
  }

  async #end(response: Response): Promise<void> {
    await this.#write(response, { isHead: false, isHttp10: false, keepAlive: false });
  }

  /** Reads on before closing: unread bytes would reset the connection, and the client might not see its answer. */
  async #linger(): Promise<void> {
    this.#enter("waiting", this.#pool.nowMs() + LINGER_MS);
    await this.#socket.closeWrite();
    const buffer = new Uint8Array(READ_BYTES);
    for (let total = 0; total < LINGER_BYTES;) {
      const count = await this.#socket.read(buffer);
      if (count === null) return;
      total += count;
    }
  }

  async #writeAll(bytes: Uint8Array): Promise<void> {
    const limitMs = this.#sinceMs + ANSWER_MS;
    for (let rest = bytes; rest.length > 0;) {
      this.#deadlineMs = Math.min(limitMs, this.#pool.nowMs() + PIECE_MS);
      rest = rest.subarray(await this.#socket.write(rest));
    }
    this.#deadlineMs = limitMs;
  }

  #enter(phase: ConnectionPhase, deadlineMs: number): void {
    this.#phase = phase;
    this.#sinceMs = this.#pool.nowMs();
    this.#deadlineMs = deadlineMs;
  }
}

/** @throws {BadRequest} for methods that `Request` does not know */
function webRequest({ method, target, headers, body }: ParsedRequest): Request {
  if (["CONNECT", "TRACE", "TRACK"].includes(method.toUpperCase())) {
    throw new BadRequest(405, "405 Method Not Allowed");
  }
  // In whatever case: `Request` reads them alike, and takes none with a body.
  const mayHaveBody = !/^(GET|HEAD)$/i.test(method) && body.length > 0;
  // The host is left out: whatever name a client uses for this server, the page is that of the path.
  return new Request(`http://localhost${target}`, { method, headers, body: mayHaveBody ? body : null });
}

function isBroken(error: unknown): boolean {
  return error instanceof Deno.errors.ConnectionReset || error instanceof Deno.errors.BrokenPipe ||
    error instanceof Deno.errors.ConnectionAborted || error instanceof Deno.errors.NotConnected ||
    error instanceof Deno.errors.TimedOut || error instanceof Deno.errors.UnexpectedEof ||
    error instanceof Deno.errors.Interrupted || error instanceof Deno.errors.BadResource;
}
