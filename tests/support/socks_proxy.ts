/**
 * A SOCKS5 proxy (RFC 1928, 1929) for tests, on 127.0.0.1, that misbehaves on demand.
 *
 * @module
 */
import { closeQuietly, copyUntilClosed, isGone } from "./http_connection.ts";

/** Behaviour towards clients. */
export type SocksManners =
  /** Tunnels connections. */
  | "well"
  /** Accepts the connection and never answers. */
  | "silent"
  /** Answers the greeting with garbage. */
  | "garbage"
  /** Refuses every target with this reply, e.g. 5 for a refused connection. */
  | { readonly reply: number };

/** The proxy; see the module. */
export class SocksProxy implements AsyncDisposable {
  /** Address, `socks5://127.0.0.1:port`. */
  readonly url: string;
  manners: SocksManners = "well";
  /** Required `user:password`; null accepts all clients. */
  login: string | null = null;
  /** Requested targets, as given: `name 10.0.0.1:6443`, `IPv4 …`, `IPv6 …`. */
  readonly seen: string[] = [];
  /** Logins by clients, right or wrong. */
  readonly logins: string[] = [];
  readonly #routes: ReadonlyMap<string, number>;
  readonly #listener: Deno.TcpListener;
  readonly #connections = new Set<Deno.Conn>();
  readonly #served: Promise<void>;

  /** @param routes targets of names that do not exist: `host:port` → port of 127.0.0.1 */
  constructor(routes: ReadonlyMap<string, number>) {
    this.#routes = routes;
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    this.url = `socks5://127.0.0.1:${this.#listener.addr.port}`;
    this.#served = this.#serve();
  }

  /** Number of open client connections. */
  get open(): number {
    return this.#connections.size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    for (const connection of this.#connections) closeQuietly(connection);
    await this.#served;
  }

  async #serve(): Promise<void> {
    const running: Promise<void>[] = [];
    for await (const connection of this.#listener) {
      this.#connections.add(connection);
      running.push(
        this.#negotiate(connection).catch((error) => {
          if (!isGone(error)) throw error;
        }).finally(() => {
          closeQuietly(connection);
          this.#connections.delete(connection);
        }),
      );
    }
    await Promise.all(running);
  }

  async #negotiate(connection: Deno.Conn): Promise<void> {
    const [version, methods = 0] = await take(connection, 2);
    const offered = await take(connection, methods);
    if (version !== 5) throw new Error(`SOCKS version ${version}`);
    if (this.manners === "garbage") {
      return await put(connection, new TextEncoder().encode("HTTP/1.1 400\r\n\r\n"));
    }
    if (this.manners === "silent") return void await connection.read(new Uint8Array(1));
    if (!await this.#letIn(connection, offered)) return;
    const target = await readTarget(connection);
    this.seen.push(target);
    const port = this.#routes.get(target.slice(target.indexOf(" ") + 1));
    const refused = typeof this.manners === "object" ? this.manners.reply : port === undefined ? 4 : 0;
    await put(connection, [5, refused, 0, 1, 0, 0, 0, 0, 0, 0]);
    if (refused !== 0 || port === undefined) return;
    const far = await Deno.connect({ hostname: "127.0.0.1", port });
    await Promise.all([copyUntilClosed(connection, far), copyUntilClosed(far, connection)]);
  }

  async #letIn(connection: Deno.Conn, offered: Uint8Array): Promise<boolean> {
    const method = this.login === null ? 0 : 2;
    const isOffered = offered.includes(method);
    await put(connection, [5, isOffered ? method : 0xff]);
    if (!isOffered || this.login === null) return isOffered;
    await take(connection, 1);
    const user = await takeText(connection);
    const given = `${user}:${await takeText(connection)}`;
    this.logins.push(given);
    await put(connection, [1, given === this.login ? 0 : 1]);
    return given === this.login;
  }
}

async function readTarget(connection: Deno.Conn): Promise<string> {
  const [, command, , type] = await take(connection, 4);
  if (command !== 1) throw new Error(`SOCKS command ${command}`);
  let target: string;
  if (type === 1) target = `IPv4 ${(await take(connection, 4)).join(".")}`;
  else if (type === 3) target = `name ${await takeText(connection)}`;
  else {
    const words = new DataView((await take(connection, 16)).buffer);
    target = `IPv6 [${Array.from({ length: 8 }, (_, at) => words.getUint16(2 * at).toString(16)).join(":")}]`;
  }
  const [high = 0, low = 0] = await take(connection, 2);
  return `${target}:${256 * high + low}`;
}

async function takeText(connection: Deno.Conn): Promise<string> {
  const [length = 0] = await take(connection, 1);
  return new TextDecoder().decode(await take(connection, length));
}

async function take(connection: Deno.Conn, length: number): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length);
  for (let have = 0; have < length;) {
    const more = await connection.read(bytes.subarray(have));
    if (more === null) throw new Deno.errors.UnexpectedEof("in the middle of SOCKS");
    have += more;
  }
  return bytes;
}

async function put(connection: Deno.Conn, bytes: Iterable<number>): Promise<void> {
  for (let rest = Uint8Array.from(bytes); rest.length > 0;) {
    rest = rest.subarray(await connection.write(rest));
  }
}
