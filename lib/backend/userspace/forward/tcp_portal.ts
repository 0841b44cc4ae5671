/**
 * A TCP port of kproxy's own: takes connections and copies their bytes to endpoints and back.
 *
 * @module
 */
import { acceptAll, type AcceptFailures, type Admission } from "../../../kernel/accept_loop.ts";
import { isOutOfDescriptors } from "../../../kernel/descriptors.ts";
import { Balancer } from "../plan/balancer.ts";
import type { PortalEndpoint } from "../plan/plan.ts";
import { type OpenPortal, type RelayContext, Session } from "./relay.ts";

/** Operations of a connection for an exchange. */
type Pipe = Pick<Deno.Conn, "read" | "write" | "closeWrite" | "close">;

/** Buffer in which each direction waits, an Ethernet packet: most connections of a node are silent most of the time. */
const SMALL_BYTES = 1_536;
/** Large buffer: as much as a socket yields at once when bytes flow. */
const LARGE_BYTES = 64 * 1024;
/** Most directions with a large buffer at a time (8 MiB), because they may have to wait with it. */
const MOST_LARGE = 128;

/** The buffers of all exchanges. */
export class CopyBuffers {
  readonly #spare: Uint8Array<ArrayBuffer>[] = [];
  #smallInUse = 0;
  #largeInUse = 0;

  get bytesInUse(): number {
    return this.#smallInUse * SMALL_BYTES + this.#largeInUse * LARGE_BYTES;
  }

  /**
   * Copies all that comes until there is no more. It reads on only when the other end has taken what was read: a slow reader slows the
   * writer down, and costs one buffer.
   */
  async copy(from: Pipe, to: Pipe, onBytes: (count: number) => void): Promise<void> {
    const small = new Uint8Array(SMALL_BYTES);
    this.#smallInUse++;
    let large: Uint8Array<ArrayBuffer> | null = null;
    try {
      for (;;) {
        const buffer = large ?? small;
        const count = await from.read(buffer);
        if (count === null) return;
        for (let at = 0; at < count;) at += await to.write(buffer.subarray(at, count));
        onBytes(count);
        // A full buffer says that more is there already.
        if (large === null && count === SMALL_BYTES) large = this.#takeLarge();
        else if (count < SMALL_BYTES) large = this.#giveBack(large);
      }
    } finally {
      this.#giveBack(large);
      this.#smallInUse--;
    }
  }

  #takeLarge(): Uint8Array<ArrayBuffer> | null {
    if (this.#largeInUse >= MOST_LARGE) return null;
    this.#largeInUse++;
    return this.#spare.pop() ?? new Uint8Array(LARGE_BYTES);
  }

  #giveBack(large: Uint8Array<ArrayBuffer> | null): null {
    if (large === null) return null;
    this.#largeInUse--;
    this.#spare.push(large);
    return null;
  }
}

/**
 * Copies both ways until both ends have sent all, shuts each end down when the other has, and closes both. Never rejects: a failure of either
 * ends both directions.
 *
 * @param onBytes called with how many bytes went from the client (`in`) or to it (`out`), each time
 */
export async function exchange(
  client: Pipe,
  server: Pipe,
  buffers: CopyBuffers,
  onBytes: (direction: "in" | "out", count: number) => void,
): Promise<void> {
  const close = (): void => {
    closeQuietly(client);
    closeQuietly(server);
  };
  const oneWay = async (from: Pipe, to: Pipe, direction: "in" | "out"): Promise<void> => {
    await buffers.copy(from, to, (count) => onBytes(direction, count));
    await to.closeWrite();
  };
  await Promise.all([
    oneWay(client, server, "in").catch(close),
    oneWay(server, client, "out").catch(close),
  ]);
  close();
}

/** Closes a connection that may be closed already. */
export function closeQuietly(socket: Pick<Deno.Conn, "close">): void {
  try {
    socket.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}

/** How long each try to reach an endpoint may take, one endpoint after the other. Source: kube-proxy 1.25 `EndpointDialTimeouts`. */
const DIAL_TIMEOUTS_MS: readonly number[] = [250, 500, 1_000, 2_000];

/**
 * How much longer a try waits once its time is over: a connection that was made in time while this thread had no processor is noticed
 * in the meantime. Without it a busy node would look like one endless row of dead endpoints.
 */
const NOTICE_MS = 20;

/** A client's connection, and the one to its endpoint. */
class TcpSession extends Session {
  readonly descriptors = 2;
  readonly #sockets: Deno.TcpConn[] = [];
  /** True once it has ended, as for another client's. */
  isClosed = false;

  constructor(socket: Deno.TcpConn, nowMs: number) {
    super(socket.remoteAddr.hostname, nowMs);
    this.add(socket);
  }

  add(socket: Deno.TcpConn): void {
    this.#sockets.push(socket);
  }

  close(): void {
    this.isClosed = true;
    for (const socket of this.#sockets) closeQuietly(socket);
  }
}

/** A TCP listener and the endpoints behind it. */
export class TcpPortal implements OpenPortal {
  readonly port: number;
  readonly #listener: Deno.TcpListener;
  readonly #context: RelayContext;
  readonly #balancer: Balancer;
  readonly #isOfOneFamily: boolean;
  readonly #stop = new AbortController();
  /** Resolves when it takes no more clients. */
  readonly #accepting: Promise<void>;

  /**
   * Begins to take connections.
   *
   * @param isOfOneFamily true: IPv4 clients of an IPv6 socket are refused, because no rule leads them here
   */
  constructor(listener: Deno.TcpListener, context: RelayContext, isOfOneFamily = false) {
    this.#listener = listener;
    this.#isOfOneFamily = isOfOneFamily;
    this.#context = context;
    this.#balancer = new Balancer(context);
    this.port = listener.addr.port;
    const failures: AcceptFailures = {
      pool: context.sessions.TCP,
      onFailure: (error, isNews) => isNews && context.onProblem("Cannot accept connections", error),
    };
    this.#accepting = acceptAll(listener, failures, (client) => this.#take(client), this.#stop.signal);
  }

  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void {
    this.#balancer.update(endpoints, stickySeconds);
  }

  async close(): Promise<void> {
    if (!this.#stop.signal.aborted) {
      this.#stop.abort();
      this.#listener.close();
    }
    await this.#accepting;
  }

  #take(client: Deno.TcpConn): Admission {
    const { sessions: { TCP: sessions }, nowMs, onProblem } = this.#context;
    if (this.#isOfOneFamily && client.remoteAddr.hostname.startsWith("::ffff:")) {
      closeQuietly(client);
      sessions.refuse("not redirected");
      return "refused";
    }
    const session = new TcpSession(client, nowMs());
    if (!sessions.admit(session)) return "refused";
    void this.#serve(client, session).catch((error) => onProblem("A connection failed", error)).finally(
      () => {
        session.close();
        sessions.leave(session);
      },
    );
    return "admitted";
  }

  /** Connects a client to an endpoint, until both have sent all. */
  async #serve(client: Deno.TcpConn, session: TcpSession): Promise<void> {
    const { sessions: { TCP: { counts } }, buffers, nowMs } = this.#context;
    const server = await this.#dial(client.remoteAddr.hostname);
    if (server === null) return;
    session.add(server);
    if (session.isClosed) return;
    // Small packets must not wait for more, and a peer that is gone must be noticed.
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.setKeepAlive(true);
    }
    await exchange(client, server, buffers, (direction, count) => {
      session.sinceMs = nowMs();
      counts.bytes[direction] += count;
    });
  }

  /** A connection to an endpoint; null if none takes one, which is counted. */
  async #dial(client: string): Promise<Deno.TcpConn | null> {
    const { sessions: { TCP: sessions } } = this.#context;
    for (const [tries, timeoutMs] of DIAL_TIMEOUTS_MS.entries()) {
      const endpoint = this.#balancer.pick(client, tries > 0);
      if (endpoint === null) {
        sessions.refuse("no endpoint");
        return null;
      }
      try {
        return await connect(endpoint, timeoutMs);
      } catch (error) {
        if (isOutOfDescriptors(error)) {
          sessions.exhausted();
          sessions.refuse("descriptors");
          return null;
        }
        sessions.counts.dialFailures++;
      }
    }
    sessions.refuse("no answer");
    return null;
  }
}

async function connect({ ip, port }: PortalEndpoint, timeoutMs: number): Promise<Deno.TcpConn> {
  const tooLong = new AbortController();
  let timer = setTimeout(() => {
    timer = setTimeout(() => tooLong.abort(), NOTICE_MS);
  }, timeoutMs);
  try {
    return await Deno.connect({ hostname: ip, port, autoSelectFamily: false, signal: tooLong.signal });
  } finally {
    clearTimeout(timer);
  }
}
