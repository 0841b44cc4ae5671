/**
 * A UDP port of kproxy's own: each client has a socket to one endpoint, as long as packets go either way.
 *
 * @module
 */
import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { isOutOfDescriptors } from "../../../kernel/descriptors.ts";
import { Balancer } from "../plan/balancer.ts";
import type { PortalEndpoint } from "../plan/ruleset.ts";
import type { OpenPortal, RelayContext } from "./relay.ts";

/** Where packets come from and go to. */
interface Peer {
  readonly address: string;
  readonly port: number;
}

/** One client of one portal. */
interface Session {
  readonly endpoint: PortalEndpoint;
  readonly socket: Socket;
  lastMs: number;
}

/** Bytes that one socket may hold for a network that does not take them; what is more is lost, as UDP may be. */
const MAX_UNSENT_BYTES = 1024 * 1024;

/** A socket, and the endpoints behind it. */
export class UdpPortal implements OpenPortal {
  readonly port: number;
  readonly #socket: Socket;
  readonly #context: RelayContext;
  readonly #balancer: Balancer;
  /** By client; the one not heard of for longest comes first. */
  readonly #sessions = new Map<string, Session>();
  #sweep: ReturnType<typeof setInterval> | undefined;
  #unsentBytes = 0;

  /** @param socket bound */
  constructor(socket: Socket, context: RelayContext) {
    this.#socket = socket;
    this.#context = context;
    this.#balancer = new Balancer(context);
    this.port = socket.address().port;
    socket.on("message", (packet, from) => this.#fromClient(packet, from));
    socket.on("error", (error) => context.onProblem("Cannot receive packets", error));
  }

  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void {
    this.#balancer.update(endpoints, stickySeconds);
    // A flow to an endpoint that is gone would go on for as long as its client asks.
    for (const [client, { endpoint }] of this.#sessions) {
      if (!this.#balancer.has(endpoint)) this.#end(client);
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#sweep);
    for (const client of [...this.#sessions.keys()]) this.#end(client);
    this.#socket.removeAllListeners("message");
    await new Promise<void>((resolve) => this.#socket.close(() => resolve()));
  }

  #fromClient(packet: Uint8Array, from: RemoteInfo): void {
    const client = `${from.address} ${from.port}`;
    const session = this.#sessions.get(client) ?? this.#begin(client, from);
    if (session === null) return;
    this.#touch(client, session);
    const { endpoint, socket } = session;
    this.#send(socket, packet, { address: endpoint.ip, port: endpoint.port });
    this.#context.observer.forwarded("UDP", "in", packet.length);
  }

  #begin(client: string, { address, port }: Peer): Session | null {
    const { observer, sessions, nowMs } = this.#context;
    const endpoint = this.#balancer.pick(address);
    const refusal = endpoint === null ? "no endpoint" : sessions.take(1);
    if (endpoint === null || refusal !== null) {
      observer.refused("UDP", refusal ?? "no endpoint");
      return null;
    }
    const socket = createSocket(endpoint.ip.includes(":") ? "udp6" : "udp4");
    const session: Session = { endpoint, socket, lastMs: nowMs() };
    socket.on("message", (packet, from) => {
      // Anybody may send to this socket; only its endpoint answers.
      if (from.port !== endpoint.port || from.address !== endpoint.ip) return;
      this.#touch(client, session);
      this.#send(this.#socket, packet, { address, port });
      observer.forwarded("UDP", "out", packet.length);
    });
    socket.on("error", (error) => {
      if (isOutOfDescriptors(error)) sessions.exhausted();
      observer.dialFailed("UDP");
      this.#end(client, session);
    });
    socket.bind({ port: 0, address: endpoint.ip.includes(":") ? "::" : "0.0.0.0" });
    this.#sessions.set(client, session);
    observer.opened("UDP");
    const { udpIdleMs } = this.#context;
    this.#sweep ??= setInterval(() => this.#endIdle(), Math.max(50, udpIdleMs / 2));
    return session;
  }

  #touch(client: string, session: Session): void {
    session.lastMs = this.#context.nowMs();
    // A session that has ended stays ended.
    if (this.#sessions.get(client) !== session) return;
    this.#sessions.delete(client);
    this.#sessions.set(client, session);
  }

  #send(socket: Socket, packet: Uint8Array, { address, port }: Peer): void {
    if (this.#unsentBytes + packet.length > MAX_UNSENT_BYTES) return;
    this.#unsentBytes += packet.length;
    // An unreachable peer is no reason to end: the next packet may reach it.
    socket.send(packet, port, address, () => {
      this.#unsentBytes -= packet.length;
    });
  }

  #endIdle(): void {
    const { nowMs, udpIdleMs } = this.#context;
    const now = nowMs();
    for (const [client, { lastMs }] of this.#sessions) {
      if (now - lastMs < udpIdleMs) break;
      this.#end(client);
    }
    if (this.#sessions.size > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }

  #end(client: string, which = this.#sessions.get(client)): void {
    const session = this.#sessions.get(client);
    if (session === undefined || session !== which) return;
    this.#sessions.delete(client);
    session.socket.close();
    this.#context.sessions.giveBack(1);
    this.#context.observer.closed("UDP");
  }
}
