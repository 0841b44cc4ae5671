/**
 * The servers of a lab agent: each answers every request with what it sees of the client.
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
 * How long a server waits before it looks whether it shall end. Those that can be woken need not look often, and where there are many
 * of them and starting a wait is slow, it should not be done often.
 */
const TICK_MS: Readonly<Record<ProbeProtocol, number>> = { tcp: 1_000, udp: 1_000, sctp: 25 };

function keyOf({ protocol, ip, port }: ServerRequest): string {
  return `${protocol} ${ip} ${port}`;
}

/** Those of one namespace. */
export class LabServers {
  /** What runs, and the promise of its end. */
  readonly #running = new Map<string, { readonly socket: Socket; readonly ended: Promise<void> }>();

  /** @param label what they call themselves */
  constructor(readonly label: string) {}

  /** Starts one, unless it runs. */
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

  /** Ends those on this port, or all; resolves when they are gone, so that their addresses can be taken again. */
  async end(port?: number): Promise<void> {
    const chosen = [...this.#running].filter(([key]) => port === undefined || key.endsWith(` ${port}`));
    for (const [key, { socket }] of chosen) {
      this.#running.delete(key);
      socket.wake();
    }
    await Promise.all(chosen.map(([, { ended }]) => ended));
  }

  /** Datagrams carry the bare answer, streams an HTTP response. */
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
   * Answers until a request asks for one answer only, or the client closes. A server has no limit of its own: on a machine with too
   * much to do a client sends its request many seconds after it was connected, and a server's end that is closed by then would look
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
      // A client that gave up has closed its end; it counts that itself.
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
        // The refusal of an earlier answer is reported at the next call.
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
