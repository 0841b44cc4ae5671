/**
 * An HTTP proxy for tests: tunnels by CONNECT, and plain requests passed on, on 127.0.0.1.
 *
 * @module
 */
import {
  closeQuietly,
  type HttpConnection,
  type HttpRequest,
  isGone,
  serveConnections,
} from "./http_connection.ts";

/** Notes what went through it. */
export class ConnectProxy implements AsyncDisposable {
  readonly url: string;
  /** `CONNECT 10.0.0.1:6443`, `GET http://…`, in order. */
  readonly seen: string[] = [];
  /** Proxy-Authorization headers, in order. */
  readonly logins: (string | undefined)[] = [];
  readonly #listener: Deno.TcpListener;
  readonly #served: Promise<void>;
  readonly #connections = new Set<HttpConnection>();
  readonly #targets = new Set<Deno.Conn>();
  /** Where names that exist nowhere lead: `host:port` → port of 127.0.0.1. */
  readonly #routes: ReadonlyMap<string, number>;

  constructor(routes: ReadonlyMap<string, number>) {
    this.#routes = routes;
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    this.url = `http://127.0.0.1:${this.#listener.addr.port}`;
    this.#served = serveConnections(
      this.#listener,
      this.#connections,
      (request, connection) => this.#forward(request, connection),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    for (const connection of this.#connections) connection.close();
    for (const target of this.#targets) closeQuietly(target);
    await this.#served;
  }

  async #forward({ method, target, headers }: HttpRequest, connection: HttpConnection): Promise<void> {
    this.seen.push(`${method} ${target}`);
    this.logins.push(headers.get("proxy-authorization"));
    const isTunnel = method === "CONNECT";
    const place = isTunnel ? target : new URL(target).host;
    const port = this.#routes.get(place);
    if (port === undefined) return connection.answer(502, "no route");
    const far = await Deno.connect({ hostname: "127.0.0.1", port });
    this.#targets.add(far);
    const encoder = new TextEncoder();
    if (isTunnel) {
      await connection.raw.write(encoder.encode("HTTP/1.1 200 Connection established\r\n\r\n"));
    } else {
      const url = new URL(target);
      const lines = [...headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
      await far.write(encoder.encode(`${method} ${url.pathname}${url.search} HTTP/1.1\r\n${lines}\r\n`));
    }
    await Promise.all([copy(connection.raw, far), copy(far, connection.raw)]);
  }
}

/** Copies bytes until either side is closed, then closes both. */
async function copy(from: Deno.Conn, to: Deno.Conn): Promise<void> {
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
    // When one side has gone, so does the other.
    closeQuietly(from);
    closeQuietly(to);
  }
}
