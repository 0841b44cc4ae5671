/**
 * A TCP port of kproxy's own: takes connections and copies their bytes to endpoints and back.
 *
 * @module
 */
import { acceptAll, type Admission } from "../../../kernel/accept_loop.ts";
import { clientOf, type ConnectionPhase, type PooledConnection } from "../../../kernel/connection_pool.ts";
import { isOutOfDescriptors } from "../../../kernel/descriptors.ts";
import { Balancer } from "../plan/balancer.ts";
import type { PortalEndpoint } from "../plan/ruleset.ts";
import type { CopyBuffers } from "./copy_buffers.ts";
import { closeQuietly, Exchange, type ExchangeHost } from "./exchange.ts";
import type { OpenPortal, RelayContext } from "./relay.ts";

/** How long each try to reach an endpoint may take, one endpoint after the other. Source: kube-proxy 1.25 `EndpointDialTimeouts`. */
const DIAL_TIMEOUTS_MS: readonly number[] = [250, 500, 1_000, 2_000];

/**
 * How much longer a try waits once its time is over: a connection that was made in time while this thread had no processor is noticed
 * in the meantime. Without it a busy node would look like one endless row of dead endpoints.
 */
const NOTICE_MS = 20;

/** A client's connection, and the one to its endpoint. */
class TcpSession implements PooledConnection, ExchangeHost {
  readonly client: string;
  sinceMs: number;
  /** It was ended for another client's. */
  isClosed = false;
  readonly #socket: Deno.TcpConn;
  readonly #context: RelayContext;
  #server: Deno.TcpConn | null = null;

  constructor(socket: Deno.TcpConn, context: RelayContext) {
    this.client = clientOf(socket.remoteAddr.hostname);
    this.sinceMs = context.nowMs();
    this.#socket = socket;
    this.#context = context;
  }

  get phase(): ConnectionPhase {
    return "answering";
  }

  get deadlineMs(): number {
    return Infinity;
  }

  get unsentBytes(): number {
    return 0;
  }

  /** To the client, and to the endpoint. */
  get descriptors(): number {
    return 2;
  }

  get buffers(): CopyBuffers {
    return this.#context.buffers;
  }

  /** Copies bytes both ways. */
  lead(server: Deno.TcpConn): void {
    this.#server = server;
    new Exchange(this.#socket, server, this);
  }

  onBytes(direction: "in" | "out", count: number): void {
    this.sinceMs = this.#context.nowMs();
    this.#context.observer.forwarded("TCP", direction, count);
  }

  /** The client is not served any more. */
  onEnd(): void {
    this.#context.sessions.leave(this);
    this.#context.observer.closed("TCP");
  }

  close(): void {
    this.isClosed = true;
    closeQuietly(this.#socket);
    if (this.#server !== null) closeQuietly(this.#server);
  }
}

/** A listener and the endpoints behind it. */
export class TcpPortal implements OpenPortal {
  readonly port: number;
  readonly #listener: Deno.TcpListener;
  readonly #context: RelayContext;
  readonly #balancer: Balancer;
  readonly #isOfOneFamily: boolean;
  readonly #stop = new AbortController();
  /** Until it takes no more clients. */
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
    const { onProblem, sessions } = context;
    this.#accepting = acceptAll(
      listener,
      {
        pool: sessions,
        onFailure: (error, isNews) => isNews && onProblem("Cannot accept connections", error),
      },
      (client) => this.#take(client),
      this.#stop.signal,
    );
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
    const { sessions, observer, onProblem } = this.#context;
    if (this.#isOfOneFamily && client.remoteAddr.hostname.startsWith("::ffff:")) {
      closeQuietly(client);
      observer.refused("TCP", "not redirected");
      return "refused";
    }
    const session = new TcpSession(client, this.#context);
    const refusal = sessions.admit(session);
    if (refusal !== null) {
      observer.refused("TCP", refusal);
      return "refused";
    }
    observer.opened("TCP");
    this.#connect(client, session).catch((error) => {
      session.close();
      session.onEnd();
      onProblem("A connection failed", error);
    });
    return "admitted";
  }

  /** Leads a client to an endpoint. */
  async #connect(client: Deno.TcpConn, session: TcpSession): Promise<void> {
    const server = await this.#dial(client.remoteAddr.hostname);
    if (server === null || session.isClosed) {
      if (server !== null) closeQuietly(server);
      session.close();
      session.onEnd();
      return;
    }
    try {
      // What is small must not wait for more, and a peer that is gone must be noticed.
      for (const socket of [client, server]) {
        socket.setNoDelay(true);
        socket.setKeepAlive(true);
      }
    } catch (error) {
      closeQuietly(server);
      throw error;
    }
    session.lead(server);
  }

  /** A connection to an endpoint; null if none takes one, which is counted. */
  async #dial(client: string): Promise<Deno.TcpConn | null> {
    const { observer, sessions } = this.#context;
    for (const [tries, timeoutMs] of DIAL_TIMEOUTS_MS.entries()) {
      const endpoint = this.#balancer.pick(client, tries > 0);
      if (endpoint === null) {
        observer.refused("TCP", "no endpoint");
        return null;
      }
      try {
        return await connect(endpoint, timeoutMs);
      } catch (error) {
        if (isOutOfDescriptors(error)) {
          sessions.exhausted();
          observer.refused("TCP", "descriptors");
          return null;
        }
        observer.dialFailed("TCP");
      }
    }
    observer.refused("TCP", "no answer");
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
