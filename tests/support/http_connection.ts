/**
 * A bare HTTP/1.1 server connection whose bytes the test controls: chunked answers in pieces, cut anywhere.
 *
 * @module
 */

/** An HTTP request. */
export interface HttpRequest {
  readonly method: string;
  /** Request target, as in the request line. */
  readonly target: string;
  /** Headers by lower-case name. */
  readonly headers: ReadonlyMap<string, string>;
  /** Body, of the length that the head gives. */
  readonly body: string;
}

const encoder = new TextEncoder();

/** One connection. An answer ends with it unless it is complete and the client keeps it alive. */
export class HttpConnection {
  readonly #connection: Deno.Conn;
  #bytesLeft = Infinity;
  #writing: Promise<void> = Promise.resolve();
  #closed = false;
  /** Called once, when either side has closed. */
  onClose: () => void = () => {};

  constructor(connection: Deno.Conn) {
    this.#connection = connection;
  }

  get raw(): Deno.Conn {
    return this.#connection;
  }

  /** Closes the connection after so many more bytes of response bodies. */
  cutAfter(bytes: number): void {
    this.#bytesLeft = bytes;
  }

  /** Sends a complete answer. */
  answer(status: number, body: string, headers: Readonly<Record<string, string>> = {}): void {
    this.begin(status, headers);
    this.piece(body);
    this.end();
  }

  /** Sends the head of an answer whose body follows in pieces. */
  begin(status: number, headers: Readonly<Record<string, string>> = {}): void {
    const all = { "content-type": "application/json", "transfer-encoding": "chunked", ...headers };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    this.#write(encoder.encode(`HTTP/1.1 ${status} Status\r\n${lines.join("")}\r\n`));
  }

  /** Sends a piece of the body now. */
  piece(text: string): void {
    if (text !== "") this.bytes(encoder.encode(text));
  }

  /** Sends bytes of the body now. */
  bytes(whole: Uint8Array): void {
    // An empty chunk would end the body.
    if (whole.length === 0) return;
    const bytes = whole.subarray(0, this.#bytesLeft);
    this.#bytesLeft -= bytes.length;
    const length = encoder.encode(`${bytes.length.toString(16)}\r\n`);
    this.#write(new Uint8Array([...length, ...bytes, 13, 10]));
    if (this.#bytesLeft === 0) void this.#writing.then(() => this.close());
  }

  /** Ends the body as complete. */
  end(): void {
    if (this.#bytesLeft > 0) this.#write(encoder.encode("0\r\n\r\n"));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeQuietly(this.#connection);
    this.onClose();
  }

  #write(bytes: Uint8Array): void {
    this.#writing = this.#writing.then(async () => {
      try {
        for (let rest = bytes; rest.length > 0 && !this.#closed;) {
          rest = rest.subarray(await this.#connection.write(rest));
        }
      } catch (error) {
        if (!isGone(error)) throw error;
        this.close();
      }
    });
  }
}

/** Accepts connections until the listener is closed; resolves when all of them are done. */
export async function serveConnections(
  listener: AsyncIterable<Deno.Conn>,
  connections: Set<HttpConnection>,
  answer: (request: HttpRequest, connection: HttpConnection) => void | Promise<void>,
): Promise<void> {
  const running: Promise<void>[] = [];
  for await (const raw of listener) {
    const connection = new HttpConnection(raw);
    connections.add(connection);
    running.push(
      readRequests(connection, answer).finally(() => {
        connection.close();
        connections.delete(connection);
      }),
    );
  }
  await Promise.all(running);
}

async function readRequests(
  connection: HttpConnection,
  answer: (request: HttpRequest, connection: HttpConnection) => void | Promise<void>,
): Promise<void> {
  const decoder = new TextDecoder();
  const buffer = new Uint8Array(65536);
  let text = "";
  for (;;) {
    let length: number | null;
    try {
      length = await connection.raw.read(buffer);
    } catch (error) {
      if (!isGone(error)) throw error;
      return;
    }
    if (length === null) return;
    text += decoder.decode(buffer.subarray(0, length), { stream: true });
    for (let end = text.indexOf("\r\n\r\n"); end >= 0; end = text.indexOf("\r\n\r\n")) {
      const head = parseHead(text.slice(0, end));
      const next = end + 4 + Number(head.headers.get("content-length") ?? "0");
      if (text.length < next) break;
      const body = text.slice(end + 4, next);
      text = text.slice(next);
      const taken = answer({ ...head, body }, connection);
      // A handler that finishes later, such as a tunnel, owns the connection.
      if (taken !== undefined) return await taken;
    }
  }
}

function parseHead(head: string): Omit<HttpRequest, "body"> {
  const [first = "", ...lines] = head.split("\r\n");
  const [method = "", target = ""] = first.split(" ");
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
  return { method, target, headers: new Map(headers) };
}

/** True for errors of a connection that either side has closed, or whose client rejected the certificate. */
export function isGone(error: unknown): boolean {
  const { BadResource, BrokenPipe, ConnectionReset, Interrupted, NotConnected, UnexpectedEof } = Deno.errors;
  const { InvalidData } = Deno.errors;
  return [BadResource, BrokenPipe, ConnectionReset, Interrupted, InvalidData, NotConnected, UnexpectedEof]
    .some((kind) => error instanceof kind);
}

/** Closes a connection that may already be closed. */
export function closeQuietly(connection: Deno.Conn): void {
  try {
    connection.close();
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

/** Copies bytes until either side is closed, then closes both. */
export async function copyUntilClosed(from: Deno.Conn, to: Deno.Conn): Promise<void> {
  try {
    const buffer = new Uint8Array(65536);
    for (let length = await from.read(buffer); length !== null; length = await from.read(buffer)) {
      for (let rest = buffer.subarray(0, length); rest.length > 0;) {
        rest = rest.subarray(await to.write(rest));
      }
    }
  } catch (error) {
    if (!isGone(error)) throw error;
  } finally {
    // If one side is closed, the other is closed, too.
    closeQuietly(from);
    closeQuietly(to);
  }
}
