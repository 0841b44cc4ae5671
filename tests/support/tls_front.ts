/**
 * TLS in front of a plain server of this machine, optionally with client certificates: every connection is forwarded.
 *
 * @module
 */
import { createConnection, type Socket } from "node:net";
import { createServer, type Server, type TLSSocket } from "node:tls";
import { TEST_CA, type TestPair } from "./test_certificates.ts";

/** The TLS front; see the module. */
export class TlsFront implements AsyncDisposable {
  /** Port on 127.0.0.1. */
  readonly port: number;
  /** Names in client certificates, in order; `""` without one. */
  readonly clients: string[] = [];
  /** Requested server names (SNI), in order; `""` without one. */
  readonly names: string[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.port = port;
  }

  /** In front of `port` of 127.0.0.1, with certificate `pair`; `asks`: requires a client certificate of the authority `ca`. */
  static async start(port: number, pair: TestPair, { asks = false, ca = TEST_CA } = {}): Promise<TlsFront> {
    const server = createServer({ ...pair, ca, requestCert: asks, rejectUnauthorized: asks });
    const { promise, resolve } = Promise.withResolvers<void>();
    server.listen(0, "127.0.0.1", resolve);
    await promise;
    const front = new TlsFront(server, (server.address() as { port: number }).port);
    server.on(
      "secureConnection",
      (near: TLSSocket) => front.#join(near, createConnection(port, "127.0.0.1")),
    );
    return front;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#server.close(() => resolve());
    for (const socket of this.#sockets) socket.destroy();
    await promise;
  }

  #join(near: TLSSocket, far: Socket): void {
    const { subject } = near.getPeerCertificate() as { subject?: { CN?: string } };
    this.clients.push(subject?.CN ?? "");
    this.names.push(String((near as TLSSocket & { servername?: unknown }).servername || ""));
    for (const [socket, other] of [[near, far], [far, near]] as const) {
      this.#sockets.add(socket);
      socket.on("data", (piece) => other.write(piece));
      socket.on("error", () => other.destroy());
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
  }
}
