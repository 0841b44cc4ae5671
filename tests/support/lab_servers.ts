/**
 * Servers of a lab agent: each answers every request with its view of the client.
 *
 * @module
 */
import type { Answer, ProbeProtocol, ServerRequest } from "./lab_probe.ts";
import { ONE_OF_SEVERAL, REQUEST } from "./lab_client.ts";
import { answerByHand, hasSctpSockets } from "./lab_sctp.ts";
import { Socket, type SocketAddress, SocketError } from "./lab_sockets.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
/**
 * Interval at which a waiting server checks whether it must end. Sockets that can be woken need few checks, and with many
 * servers, where starting a wait is slow, checks should be rare.
 */
const TICK_MS: Readonly<Record<ProbeProtocol, number>> = { tcp: 1_000, udp: 1_000, sctp: 25 };

function keyOf({ protocol, ip, port }: ServerRequest): string {
  return `${protocol} ${ip} ${port}`;
}

/** Servers of one namespace. */
export class LabServers {
  /** Running servers: socket, and promise of the end. */
  readonly #running = new Map<string, { readonly socket: Socket; readonly ended: Promise<void> }>();

  /** @param label name that the servers answer with */
  constructor(readonly label: string) {}

  /** Starts a server, unless it runs. */
  serve(request: ServerRequest): void {
    const key = keyOf(request);
    if (this.#running.has(key)) return;
    const { protocol } = request;
    const byHand = protocol === "sctp" && !hasSctpSockets();
    const socket = Socket.of(byHand ? "rawSctp" : protocol, request.ip);
    socket.bind(byHand ? { ip: request.ip, port: 0 } : request);
    if (!byHand && protocol !== "udp") socket.listen();
    const entry = { socket, ended: Promise.resolve() };
    this.#running.set(key, entry);
    entry.ended = byHand
      ? this.#serveSctpByHand(key, request, socket)
      : protocol === "udp"
      ? this.#serveDatagrams(key, request, socket)
      : this.#serveStream(key, request, socket);
  }

  /** Ends servers on this port, or all; resolves when they have ended, so that their addresses can be reused. */
  async end(port?: number): Promise<void> {
    const chosen = [...this.#running].filter(([key]) => port === undefined || key.endsWith(` ${port}`));
    for (const [key, { socket }] of chosen) {
      this.#running.delete(key);
      socket.wake();
    }
    await Promise.all(chosen.map(([, { ended }]) => ended));
  }

  /** Text of an answer: bare in datagrams, an HTTP response in streams. */
  #answerText(protocol: ProbeProtocol, local: SocketAddress, client: SocketAddress): string {
    const answer: Answer = { server: this.label, local, client };
    const body = JSON.stringify(answer) + "\n";
    if (protocol === "udp") return body;
    return `HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  }

  async #serveStream(key: string, { protocol }: ServerRequest, listener: Socket): Promise<void> {
    while (this.#running.has(key)) {
      const accepted = await listener.accept(TICK_MS[protocol]);
      if (accepted !== null) void this.#answerStream(key, protocol, accepted.socket, accepted.from);
    }
    listener[Symbol.dispose]();
  }

  /**
   * Answers until a request asks for one answer only, or the client closes. The server has no limit of its own: on an overloaded
   * machine a client may send its request many seconds after connecting, and if the server had closed by then, it would look
   * as if a proxy had cut the connection.
   */
  async #answerStream(
    key: string,
    protocol: ProbeProtocol,
    socket: Socket,
    from: SocketAddress,
  ): Promise<void> {
    using connection = socket;
    try {
      while (this.#running.has(key)) {
        const request = await connection.receive(TICK_MS[protocol]);
        if (request === null) continue;
        const text = decoder.decode(request.bytes);
        if (text !== REQUEST && text !== ONE_OF_SEVERAL) return;
        connection.send(encoder.encode(this.#answerText(protocol, connection.localAddress(), from)));
        if (text === REQUEST) return;
      }
    } catch (error) {
      // A client that gave up has closed its end, and counts that itself.
      if (!(error instanceof SocketError)) throw error;
    }
  }

  async #serveDatagrams(key: string, request: ServerRequest, socket: Socket): Promise<void> {
    while (this.#running.has(key)) {
      try {
        const datagram = await socket.receive(TICK_MS.udp);
        if (datagram === null) continue;
        socket.sendTo(encoder.encode(this.#answerText("udp", request, datagram.from)), datagram.from);
      } catch (error) {
        // An ICMP error for an earlier answer is reported by the next call.
        if (!(error instanceof SocketError)) throw error;
      }
    }
    socket[Symbol.dispose]();
  }

  async #serveSctpByHand(key: string, request: ServerRequest, socket: Socket): Promise<void> {
    const answer = (client: SocketAddress): string => this.#answerText("sctp", request, client);
    while (this.#running.has(key)) await answerByHand(socket, request, answer, TICK_MS.sctp);
    socket[Symbol.dispose]();
  }
}
