/**
 * An HTTP or HTTPS proxy for tests on 127.0.0.1: tunnels by CONNECT, and forwards plain requests.
 *
 * @module
 */
import {
  closeQuietly,
  copyUntilClosed,
  type HttpConnection,
  type HttpRequest,
  isGone,
  serveConnections,
} from "./http_connection.ts";
import type { TestPair } from "./test_certificates.ts";

/** Records the requests that it forwards. */
export class ConnectProxy implements AsyncDisposable {
  readonly url: string;
  /** Requests in order: `CONNECT 10.0.0.1:6443`, `GET http://…`. */
  readonly seen: string[] = [];
  /** Proxy-Authorization headers in order. */
  readonly logins: (string | undefined)[] = [];
  /** `silent`: accepts requests and never answers; a number: status of every answer to CONNECT. */
  manners: "well" | "silent" | number = "well";
  readonly #listener: Deno.TcpListener | Deno.TlsListener;
  readonly #served: Promise<void>;
  readonly #connections = new Set<HttpConnection>();
  readonly #targets = new Set<Deno.Conn>();
  /** Targets of names that do not exist: `host:port` → port of 127.0.0.1. */
  readonly #routes: ReadonlyMap<string, number>;

  /** @param pair makes it speak TLS with this certificate */
  constructor(routes: ReadonlyMap<string, number>, pair?: TestPair) {
    this.#routes = routes;
    const place = { hostname: "127.0.0.1", port: 0 };
    this.#listener = pair === undefined ? Deno.listen(place) : Deno.listenTls({ ...place, ...pair });
    this.url = `${pair === undefined ? "http" : "https"}://127.0.0.1:${this.#listener.addr.port}`;
    this.#served = serveConnections(
      this.#listener,
      this.#connections,
      (request, connection) =>
        this.#forward(request, connection).catch((error) => {
          if (!isGone(error)) throw error;
        }),
    );
  }

  /** Number of open client connections. */
  get open(): number {
    return this.#connections.size;
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
    if (this.manners === "silent") return void await connection.raw.read(new Uint8Array(1));
    if (isTunnel && typeof this.manners === "number") return connection.answer(this.manners, "no");
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
    await Promise.all([copyUntilClosed(connection.raw, far), copyUntilClosed(far, connection.raw)]);
  }
}
