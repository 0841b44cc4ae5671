/**
 * Client of a lab agent: one request over a new socket, or several over a connection that is kept.
 *
 * @module
 */
import type { Answer, KeptRequest, ProbeRequest, ProbeResult } from "./lab_probe.ts";
import { askByHand, hasSctpSockets } from "./lab_sctp.ts";
import { Socket, SocketError } from "./lab_sockets.ts";

/** A request after which the server closes the connection. */
export const REQUEST = "GET / HTTP/1.0\r\n\r\n";
/** A request that keeps the connection for further ones. */
export const ONE_OF_SEVERAL = "GET / HTTP/1.1\r\n\r\n";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The parsed answer; null if it is not from a lab's server. */
function parseAnswer(text: string): Answer | null {
  const start = text.indexOf('{"server":');
  return start < 0 ? null : JSON.parse(text.slice(start));
}

/**
 * Sends a request over this connection, and reads the result.
 *
 * @throws {SocketError} e.g. if the connection is reset
 */
async function exchange(
  socket: Socket,
  request: string,
  left: () => number,
): Promise<Answer | Exclude<ProbeResult, { kind: "answer" }>> {
  socket.send(encoder.encode(request));
  const reply = await socket.receive(left);
  if (reply === null) return { kind: "silence" };
  if (reply.bytes.length === 0) return { kind: "error", message: "closed without an answer" };
  const text = decoder.decode(reply.bytes);
  return parseAnswer(text) ?? { kind: "stranger", text };
}

/**
 * A lost SYN is sent again after a second. One that is sent again sooner was not lost: a server that still has the other end of a
 * connection from the same port, because its last packets were lost, challenges it, and the kernel then waits for a tick only.
 */
const LEAST_SYN_RETRY_MS = 900;

/** Result of a request whose call of the C library failed. */
function failureOf(error: unknown): ProbeResult {
  if (!(error instanceof SocketError)) throw error;
  if (error.message.endsWith("ECONNREFUSED")) return { kind: "refused" };
  // If the sender's own firewall drops a datagram, `send` fails for lack of permission.
  if (error.message === "send: EPERM") return { kind: "silence" };
  return { kind: "error", message: error.message };
}

/**
 * One request over a new socket.
 *
 * @param now the clock; that of a loop stops while its thread has no CPU
 */
export async function ask(
  request: Omit<ProbeRequest, "count">,
  now: () => number = () => performance.now(),
): Promise<ProbeResult> {
  const { protocol, source, sourcePort = 0, to, timeoutMs } = request;
  const [start, beganMs] = [performance.now(), now()];
  const left = (): number => timeoutMs - (now() - beganMs);
  try {
    if (protocol === "sctp" && !hasSctpSockets()) return await askByHand(request, parseAnswer);
    using socket = Socket.of(protocol, to.ip);
    if (source !== undefined) socket.bind({ ip: source, port: sourcePort });
    if (!await socket.connect(to, left)) return { kind: "silence" };
    const wasSynLost = protocol === "tcp" && performance.now() - start > LEAST_SYN_RETRY_MS &&
      socket.wasSynLost();
    const lostBefore = protocol === "tcp" ? socket.lostSegments() : 0;
    const answer = await exchange(socket, REQUEST, left);
    if ("kind" in answer) return answer;
    const tookMs = performance.now() - start;
    const lostSegments = protocol === "tcp" ? socket.lostSegments() - lostBefore : 0;
    return { kind: "answer", answer, from: socket.localAddress(), tookMs, wasSynLost, lostSegments };
  } catch (error) {
    return failureOf(error);
  }
}

/** A TCP connection for several requests, opened by the first one. */
export class KeptConnection {
  #socket: Socket | undefined;

  async ask({ to, timeoutMs }: KeptRequest): Promise<ProbeResult> {
    const start = performance.now();
    const left = (): number => timeoutMs - (performance.now() - start);
    try {
      if (this.#socket === undefined) {
        this.#socket = Socket.of("tcp", to.ip);
        if (!await this.#socket.connect(to, left)) return { kind: "silence" };
      }
      const socket = this.#socket;
      const answer = await exchange(socket, ONE_OF_SEVERAL, left);
      if ("kind" in answer) return answer;
      const tookMs = performance.now() - start;
      const lost = { wasSynLost: socket.wasSynLost(), lostSegments: 0 };
      return { kind: "answer", answer, from: socket.localAddress(), tookMs, ...lost };
    } catch (error) {
      return failureOf(error);
    }
  }

  /** Closes the connection, or resets it; the next request opens another one. */
  drop(isReset: boolean): void {
    if (isReset) this.#socket?.reset();
    else this.#socket?.[Symbol.dispose]();
    this.#socket = undefined;
  }
}
