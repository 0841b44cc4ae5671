/**
 * One address to listen on, as Go's servers understand it: a wildcard means both IP families.
 *
 * @module
 */
import { isLoopback, isUnspecified, joinHostPort, parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import { acceptAll, type Admission } from "../kernel/accept_loop.ts";
import { textAnswer } from "./http_answer.ts";
import { clientOf, type ConnectionPool, type Lane } from "../kernel/connection_pool.ts";
import { HttpConnection, type Socket } from "./http_connection.ts";

/** The client of a connection. */
export interface Peer {
  readonly family: IpFamily;
  /** Canonical; an IPv4 peer of an IPv6 socket is an IPv4 address here. */
  readonly address: string;
  readonly isLoopback: boolean;
}

/** Answers a request. `stopping` aborts when the server ends; `request.signal` never does. */
export type Handler = (request: Request, peer: Peer, stopping: AbortSignal) => Response | Promise<Response>;

/** Handler and limits of the connections on a socket. */
export interface Serving {
  readonly handler: Handler;
  /** Called with what a handler throws; the client gets status 500. */
  readonly onError: (error: unknown) => void;
  /** Called if no connection can be accepted, at most once a minute; accepting is retried. */
  readonly onAcceptFailure: (error: unknown) => void;
  /** The pool of all servers together. */
  readonly pool: ConnectionPool;
  readonly lane: Lane;
  /** Speaks TLS on each connection. @default {plain HTTP} */
  readonly secure?: Secure | undefined;
}

/** Secures a connection; closing the result closes the connection. */
export type Secure = (socket: Socket) => Socket;

/** Options of {@linkcode listen}. */
export interface ListenOptions extends Serving {
  /** An IP address; `0.0.0.0` and `::` mean all addresses of both families, or of `only`. */
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** For a wildcard: listen on IPv4 addresses only. */
  readonly ipv4Only?: boolean;
  /** Opens one socket. @default {serveSocket} */
  readonly bind?: typeof serveSocket;
}

/** An open port, or a Unix socket. */
export interface Listener {
  /** The TCP port; 0 for a Unix socket. */
  readonly port: number;
  /** Addresses that it really listens on, e.g. `[::]:10256`; two if the kernel keeps the families apart. */
  readonly addresses: readonly string[];
  /** Resolves when it has ended, by `close` or by itself. */
  readonly finished: Promise<void>;
  /** Closes the port and all its connections. */
  close(): Promise<void>;
}

/**
 * Begins to listen. A wildcard is one socket for both families, or one of IPv4 where the kernel has no IPv6.
 *
 * @throws {Error} if the address is taken, is not of this host or may not be used
 */
export function listen(options: ListenOptions): Listener {
  const { host, port, ipv4Only = false, bind = serveSocket } = options;
  const serve = (hostname: string, at: number): Listener => bind(hostname, at, options);
  const ip = parseIp(host);
  if (ip === null) throw new TypeError(`Cannot listen on "${host}": not an IP address`);
  if (!isUnspecified(ip)) return serve(ip.text, port);
  if (ipv4Only) return serve("0.0.0.0", port);
  let both: Listener;
  try {
    both = serve("::", port);
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse || error instanceof Deno.errors.PermissionDenied) throw error;
    return serve("0.0.0.0", port);
  }
  // With sysctl net.ipv6.bindv6only the socket has IPv6 alone; otherwise the IPv4 side is taken, by itself.
  try {
    return joined(both, serve("0.0.0.0", both.port));
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) return both;
    void both.close();
    throw error;
  }
}

/**
 * Opens one socket and serves HTTP on it.
 *
 * @throws {Error} if it cannot be bound
 */
export function serveSocket(hostname: string, port: number, serving: Serving): Listener {
  return serveListener(Deno.listen({ hostname, port }), serving, hostname);
}

/** Serves HTTP on a socket that listens. `host`: the address that a port was opened on. */
export function serveListener(
  listener: Deno.TcpListener | Deno.UnixListener,
  serving: Serving,
  host = "",
): Listener {
  const stop = new AbortController();
  const connections = new Map<HttpConnection, Promise<void>>();
  const accept = (socket: Deno.Conn): Admission => {
    const connection = openConnection(socket, serving, stop.signal);
    const admission = serving.pool.admit(connection, serving.lane);
    if (admission === "refused") return admission;
    const served = connection.serve().catch(serving.onError).finally(() => connections.delete(connection));
    connections.set(connection, served);
    return admission;
  };
  const { pool, lane, onAcceptFailure } = serving;
  const onFailure = (error: unknown, isNews: boolean): void => {
    pool.failed(lane);
    if (isNews) onAcceptFailure(error);
  };
  const accepting = acceptAll(listener, { pool, onFailure }, accept, stop.signal).catch(serving.onError);
  const close = (): void => {
    if (stop.signal.aborted) return;
    for (const connection of connections.keys()) connection.close();
    stop.abort();
    try {
      listener.close();
    } catch (error) {
      // After too many failures it is closed already.
      if (!(error instanceof Deno.errors.BadResource)) throw error;
    }
  };
  const finished = accepting.then(async () => {
    // Accepting may have ended by a fault of kproxy; no new listener could have an address that is still taken.
    close();
    await Promise.all(connections.values());
  });
  const { addr } = listener;
  const [port, address] = "port" in addr ? [addr.port, joinHostPort(host, addr.port)] : [0, addr.path];
  return {
    port,
    addresses: [address],
    finished,
    close: () => {
      close();
      return finished;
    },
  };
}

function openConnection(socket: Deno.Conn, serving: Serving, stopping: AbortSignal): HttpConnection {
  const { handler, onError, pool, secure = (plain: Socket) => plain } = serving;
  const peer = peerOf(socket.remoteAddr);
  const answer = async (request: Request): Promise<Response> => {
    try {
      return await handler(request, peer, stopping);
    } catch (error) {
      onError(error);
      return textAnswer("500 internal error\n", { status: 500 });
    }
  };
  return new HttpConnection(secure(socket), clientOf(peer.address), pool, answer);
}

/** Peer of a Unix socket: no IP client has its address. */
const OF_UNIX_SOCKET: Peer = { family: "IPv4", address: "unix", isLoopback: true };

function peerOf(address: Deno.Addr): Peer {
  if (address.transport === "unix") return OF_UNIX_SOCKET;
  const ip = "hostname" in address ? parseIp(address.hostname.split("%", 1)[0] ?? "") : null;
  if (ip === null) throw new TypeError("A client without an IP address");
  return { family: ip.family, address: ip.text, isLoopback: isLoopback(ip) };
}

/** Two sockets of one port, as one listener. */
function joined(one: Listener, other: Listener): Listener {
  return {
    port: one.port,
    addresses: [...one.addresses, ...other.addresses],
    finished: Promise.all([one.finished, other.finished]).then(() => {}),
    close: async () => {
      await Promise.all([one.close(), other.close()]);
    },
  };
}
