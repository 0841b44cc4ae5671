/**
 * A UDP port of kproxy's own: each client has a socket to one endpoint, as long as packets go either way.
 *
 * @module
 */
import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { isOutOfDescriptors } from "../../../kernel/descriptors.ts";
import { Balancer } from "../plan/balancer.ts";
import type { PortalEndpoint } from "../plan/plan.ts";
import { type OpenPortal, type RelayContext, Session, type Sessions } from "./relay.ts";

/** Address and port of a client or an endpoint. */
interface Peer {
  readonly address: string;
  readonly port: number;
}

/** Session of one client of one portal. */
class UdpSession extends Session {
  /** Socket to its endpoint; null until there is room for it. */
  socket: Socket | null = null;

  /** @param peer address and port of the client */
  constructor(
    readonly peer: string,
    address: string,
    readonly endpoint: PortalEndpoint,
    nowMs: number,
    readonly close: () => void,
  ) {
    super(address, nowMs);
  }
}

/** Bytes that one socket may hold for a network that does not take them; what is more is lost, as UDP may be. */
const MAX_UNSENT_BYTES = 1024 * 1024;

/** Most sessions that end in one turn, because closing a socket takes time; other tasks have their turn in between. */
const MOST_AT_ONCE = 32;
const TURN_MS = 10;

/** A UDP socket, and the endpoints behind it. */
export class UdpPortal implements OpenPortal {
  readonly port: number;
  readonly #socket: Socket;
  readonly #context: RelayContext;
  readonly #all: Sessions;
  readonly #balancer: Balancer;
  /** Sessions by client; the one not heard of for longest comes first. */
  readonly #sessions = new Map<string, UdpSession>();
  /** Sessions whose endpoint is gone: nothing is sent to it; its answer to the last packet still goes to the client. */
  readonly #leaving = new Set<UdpSession>();
  #sweep: ReturnType<typeof setTimeout> | undefined;
  #unsentBytes = 0;

  /** @param socket bound */
  constructor(socket: Socket, context: RelayContext) {
    this.#socket = socket;
    this.#context = context;
    this.#all = context.sessions.UDP;
    this.#balancer = new Balancer(context);
    this.port = socket.address().port;
    socket.on("message", (packet, from) => this.#fromClient(packet, from));
    socket.on("error", (error) => context.onProblem("Cannot receive packets", error));
  }

  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void {
    this.#balancer.update(endpoints, stickySeconds);
    const nowMs = this.#context.nowMs();
    // A flow to an endpoint that is gone would go on for as long as its client asks.
    for (const [peer, session] of this.#sessions) {
      if (this.#balancer.has(session.endpoint)) continue;
      this.#sessions.delete(peer);
      session.sinceMs = nowMs;
      this.#leaving.add(session);
    }
  }

  async close(): Promise<void> {
    clearTimeout(this.#sweep);
    const sessions = [...this.#sessions.values(), ...this.#leaving];
    for (const { socket } of [...sessions, { socket: this.#socket }]) socket?.removeAllListeners("message");
    await new Promise<void>((resolve) => this.#socket.close(() => resolve()));
    for (const [at, session] of sessions.entries()) {
      if (at > 0 && at % MOST_AT_ONCE === 0) await new Promise((resolve) => setTimeout(resolve, TURN_MS));
      this.#end(session);
    }
  }

  #fromClient(packet: Uint8Array, from: RemoteInfo): void {
    const peer = `${from.address} ${from.port}`;
    const session = this.#sessions.get(peer) ?? this.#begin(peer, from);
    if (session === null) return;
    this.#touch(session);
    const { endpoint, socket } = session;
    if (socket !== null) this.#send(socket, packet, { address: endpoint.ip, port: endpoint.port });
    this.#all.counts.bytes.in += packet.length;
  }

  #begin(peer: string, { address, port }: Peer): UdpSession | null {
    const endpoint = this.#balancer.pick(address);
    if (endpoint === null) {
      this.#all.refuse("no endpoint");
      return null;
    }
    const nowMs = this.#context.nowMs();
    const session = new UdpSession(peer, address, endpoint, nowMs, () => this.#end(session));
    if (!this.#all.admit(session)) return null;
    const socket = session.socket = createSocket(endpoint.ip.includes(":") ? "udp6" : "udp4");
    socket.on("message", (packet, from) => {
      // Any program may send to this socket; only its endpoint answers.
      if (from.port !== endpoint.port || from.address !== endpoint.ip) return;
      this.#touch(session);
      this.#send(this.#socket, packet, { address, port });
      this.#all.counts.bytes.out += packet.length;
    });
    socket.on("error", (error) => {
      if (isOutOfDescriptors(error)) this.#all.exhausted();
      this.#all.counts.dialFailures++;
      this.#end(session);
    });
    socket.bind({ port: 0, address: endpoint.ip.includes(":") ? "::" : "0.0.0.0" });
    this.#sessions.set(peer, session);
    this.#sweep ??= setTimeout(() => this.#endIdle(), this.#context.udpIdleMs);
    return session;
  }

  #touch(session: UdpSession): void {
    // A session that is leaving leaves, however much its endpoint still sends.
    if (this.#sessions.get(session.peer) !== session) return;
    session.sinceMs = this.#context.nowMs();
    this.#sessions.delete(session.peer);
    this.#sessions.set(session.peer, session);
  }

  #send(socket: Socket, packet: Uint8Array, { address, port }: Peer): void {
    if (this.#unsentBytes + packet.length > MAX_UNSENT_BYTES) return;
    this.#unsentBytes += packet.length;
    // An unreachable peer is no reason to end: the next packet may reach it.
    socket.send(packet, port, address, () => {
      this.#unsentBytes -= packet.length;
    });
  }

  /** Ends sessions that have been silent for long enough, and comes again when the next ones have. */
  #endIdle(): void {
    const { nowMs, udpIdleMs } = this.#context;
    const now = nowMs();
    let left = MOST_AT_ONCE;
    let nextMs = Infinity;
    for (const sessions of [this.#sessions.values(), this.#leaving]) {
      for (const session of sessions) {
        const restMs = session.sinceMs + udpIdleMs - now;
        if (restMs > 0 || left === 0) {
          nextMs = Math.min(nextMs, Math.max(restMs, TURN_MS));
          break;
        }
        this.#end(session);
        left--;
      }
    }
    this.#sweep = nextMs === Infinity ? undefined : setTimeout(() => this.#endIdle(), nextMs);
  }

  #end(session: UdpSession): void {
    const { peer, socket } = session;
    const isCurrent = this.#sessions.get(peer) === session;
    if (isCurrent) this.#sessions.delete(peer);
    // It may have ended already.
    if (!this.#leaving.delete(session) && !isCurrent) return;
    socket?.close();
    this.#all.leave(session);
  }
}
