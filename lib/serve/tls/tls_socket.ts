/**
 * One client's connection over TLS, for what serves connections.
 *
 * The runtime's own TLS asks no client for a certificate; `node:tls` does, on any stream. So connections are accepted, counted and
 * ended as all others are, and only what is on them is another.
 *
 * @module
 */
import { Duplex } from "node:stream";
import { createServer, type TLSSocket } from "node:tls";
import type { TlsVersion } from "../../config/types.ts";
import type { Socket } from "../http_connection.ts";
import type { ServingMaterial } from "./serving_files.ts";

/** The certificate of the server, and what it asks of clients. */
export interface TlsOptions extends Pick<ServingMaterial, "cert" | "key" | "ca"> {
  readonly minVersion: TlsVersion;
  /** Called for each client without a connection. */
  readonly onRefused: () => void;
}

const READ_BYTES = 4096;
/** Limit for a handshake: for so long the runtime keeps a connection whose handshake failed (Deno 2.9.6). */
const HANDSHAKE_MS = 5_000;
/** The first byte of a client that speaks TLS. */
const HANDSHAKE = 22;
/** Answer of Go's servers to plain HTTP. */
const PLAIN_ANSWER = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/** Speaks TLS as the server on `raw`, which it closes. */
export function tlsSocket(raw: Socket, options: TlsOptions): Socket {
  return new SecuredSocket(raw, options);
}

class SecuredSocket implements Socket {
  readonly #options: TlsOptions;
  readonly #raw: RawStream;
  #handshake: Promise<TLSSocket> | undefined;
  #pieces: AsyncIterator<Uint8Array> | undefined;
  /** Bytes that were read and not taken yet. */
  #left: Uint8Array = new Uint8Array(0);
  #isSecured = false;
  #isClosed = false;

  constructor(socket: Socket, options: TlsOptions) {
    this.#options = options;
    this.#raw = new RawStream(socket);
    this.#raw.on("error", () => this.close());
  }

  /** Begins with the first read or write: a connection that the pool refuses costs no handshake. */
  get #secured(): Promise<TLSSocket> {
    return this.#handshake ??= this.#secure();
  }

  #secure(): Promise<TLSSocket> {
    const { cert, key, ca, minVersion, onRefused } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
    const server = createServer({
      cert,
      key,
      minVersion: minVersion === "VersionTLS13" ? "TLSv1.3" : "TLSv1.2",
      allowHalfOpen: true,
      handshakeTimeout: HANDSHAKE_MS,
      ...(ca === null ? {} : { ca, requestCert: true, rejectUnauthorized: true }),
    });
    server.on("secureConnection", (secured) => {
      // Each reader and writer gets the error by itself.
      secured.on("error", () => this.close());
      // The server lets no other one through; it is asked once more, as all depends on it. A session that is resumed was checked
      // against the authorities of its beginning, and the runtime keeps sessions for all servers together.
      if (ca !== null && (!secured.authorized || secured.isSessionReused())) this.#raw.destroy();
      else {
        this.#isSecured = true;
        resolve(secured);
      }
    });
    server.on("tlsClientError", (_error, failed) => {
      failed.destroy();
      this.#raw.destroy();
    });
    // The server reports nothing of a client that leaves before there is TLS.
    this.#raw.once("end", () => {
      if (!this.#isSecured) this.#raw.destroy();
    });
    this.#raw.once("close", () => {
      if (!this.#isClosed && !this.#isSecured) onRefused();
      reject(new Deno.errors.ConnectionAborted("no TLS connection came about"));
    });
    server.emit("connection", this.#raw);
    return promise;
  }

  async read(buffer: Uint8Array): Promise<number | null> {
    if (this.#left.length === 0) {
      const secured = await this.#secured;
      this.#pieces ??= secured[Symbol.asyncIterator]();
      const { value, done } = await ofClient(this.#pieces.next());
      if (done) return null;
      this.#left = value;
    }
    const count = Math.min(buffer.length, this.#left.length);
    buffer.set(this.#left.subarray(0, count));
    this.#left = this.#left.subarray(count);
    return count;
  }

  async write(bytes: Uint8Array): Promise<number> {
    const secured = await this.#secured;
    await ofClient(
      new Promise<void>((resolve, reject) => {
        // A stream that is destroyed may never call back.
        secured.once("close", reject);
        secured.write(bytes, (error) => {
          secured.off("close", reject);
          if (error) reject(error);
          else resolve();
        });
      }),
    );
    return bytes.length;
  }

  async closeWrite(): Promise<void> {
    const secured = await this.#secured;
    secured.end();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#raw.destroy();
    void this.#handshake?.then((secured) => secured.destroy(), () => undefined);
  }
}

/** The connection that TLS is spoken on, as a stream of Node. */
class RawStream extends Duplex {
  readonly #socket: Socket;
  #hasBegun = false;

  constructor(socket: Socket) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
  }

  override _read(): void {
    const buffer = new Uint8Array(READ_BYTES);
    this.#socket.read(buffer).then(
      (count) => this.#take(count === null ? null : buffer.slice(0, count)),
      (error) => this.destroy(error),
    );
  }

  override _write(bytes: Uint8Array, _encoding: string, done: (error?: Error | null) => void): void {
    writeAll(this.#socket, bytes).then(() => done(), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.closeWrite().then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.close();
    done(error);
  }

  #take(bytes: Uint8Array | null): void {
    const isPlain = !this.#hasBegun && bytes !== null && bytes[0] !== HANDSHAKE;
    this.#hasBegun = true;
    if (!isPlain) {
      this.push(bytes);
      return;
    }
    const end = (): void => {
      this.destroy();
    };
    writeAll(this.#socket, new TextEncoder().encode(PLAIN_ANSWER)).then(() => this.#socket.closeWrite())
      .then(end, end);
  }
}

async function writeAll(socket: Socket, bytes: Uint8Array): Promise<void> {
  for (let rest = bytes; rest.length > 0;) rest = rest.subarray(await socket.write(rest));
}

/** Turns errors of TLS into those of a broken connection, which only concern the client. */
async function ofClient<Result>(work: Promise<Result>): Promise<Result> {
  try {
    return await work;
  } catch (cause) {
    throw new Deno.errors.ConnectionAborted("the TLS connection ended", { cause });
  }
}
