/**
 * Requests over a TLS connection of our own, for servers that must not be verified or must be verified under another name.
 *
 * @module
 */
import { request } from "node:http";
import { isIP, Socket } from "node:net";
import { Readable } from "node:stream";
import { connect, type TLSSocket } from "node:tls";
import { type HttpAnswer, retryAfterSeconds } from "./kube_answer.ts";
import type { Credentials } from "./kube_credentials.ts";
import { pemsOf } from "./kube_fetch.ts";
import { unpacked } from "./kube_packed.ts";
import { openSocket } from "./kube_socket.ts";
import type { KubeTransport, TransportRequest } from "./kube_transport.ts";
import type { ClusterAccess } from "./kubeconfig.ts";

/** See the module. Each request has a connection of its own. */
export class TlsTransport implements KubeTransport {
  readonly #access: ClusterAccess;

  constructor(access: ClusterAccess) {
    this.#access = access;
  }

  async send(wanted: TransportRequest, signal: AbortSignal): Promise<HttpAnswer> {
    const url = new URL(this.#access.server + wanted.path);
    const host = url.hostname.replace(/^\[|\]$/g, "");
    const port = Number(url.port || 443);
    const { tlsServerName } = this.#access;
    const name = (tlsServerName === "" ? host : tlsServerName).replace(/^\[|\]$/g, "");
    const socket = await this.#way({ host, port, name }, wanted, signal);
    signal.throwIfAborted();
    const secured = this.#secure(wanted, name, socket ?? { host, port });
    return await new Promise((resolve, reject) => {
      const outgoing = request({
        host,
        port,
        method: wanted.method,
        path: url.pathname + url.search,
        headers: { ...linesOf(wanted.headers), host: url.host, connection: "close" },
        signal,
        createConnection: () => secured,
      }, (incoming) => {
        resolve({
          status: incoming.statusCode ?? 0,
          retryAfterSeconds: retryAfterSeconds(incoming.headers["retry-after"] ?? null),
          contentType: incoming.headers["content-type"] ?? "",
          date: incoming.headers.date ?? "",
          body: unpacked(
            Readable.toWeb(incoming) as ReadableStream<Uint8Array<ArrayBuffer>>,
            incoming.headers["content-encoding"] ?? "",
          ),
        });
      });
      outgoing.on("error", (error) => {
        // A request that is given up while it connects would leave its connection open (Deno 2.9.6).
        secured.destroy();
        reject(signal.aborted ? signal.reason : error);
      });
      outgoing.end(wanted.body);
    });
  }

  check(credentials: Credentials): void {
    // Node's TLS would tell only when it connects.
    Deno.createHttpClient(pemsOf(credentials)).close();
  }

  close(): void {
    // Every connection ends with its answer.
  }

  /** The open way to the server; undefined if TLS may open it itself. */
  async #way(
    { host, port, name }: { readonly host: string; readonly port: number; readonly name: string },
    { credentials }: TransportRequest,
    signal: AbortSignal,
  ): Promise<Socket | undefined> {
    const { proxyUrl, insecureSkipTlsVerify } = this.#access;
    if (proxyUrl !== "") {
      const { openTunnel } = await import("./kube_tunnel.ts");
      const { certificateAuthority } = credentials;
      return await openTunnel({ proxyUrl, host, port, certificateAuthority, insecureSkipTlsVerify }, signal);
    }
    // TLS has no server names that are addresses: it is verified against that of the host, which here is another one.
    return isIP(name) !== 0 && name !== host ? await openSocket(host, port, signal) : undefined;
  }

  /** TLS to `target`, which must be `name`. */
  #secure(
    { credentials }: TransportRequest,
    name: string,
    target: Socket | { readonly host: string; readonly port: number },
  ): TLSSocket {
    const { certificateAuthority, clientCertificate } = credentials;
    const secured = connect({
      ...(target instanceof Socket ? { socket: target, host: name } : target),
      rejectUnauthorized: !this.#access.insecureSkipTlsVerify,
      ...(isIP(name) === 0 ? { servername: name } : {}),
      ...(certificateAuthority === null ? {} : { ca: certificateAuthority }),
      ...(clientCertificate === null
        ? {}
        : { cert: clientCertificate.certificate, key: clientCertificate.key }),
    });
    // Where TLS fails, what it was to run over is left to whoever opened it.
    if (target instanceof Socket) secured.once("close", () => target.destroy());
    return secured;
  }
}

/** A line for each value. */
function linesOf(headers: TransportRequest["headers"]): Record<string, string | string[]> {
  return Object.fromEntries(
    Object.entries(headers).map((
      [name, values],
    ) => [name, typeof values === "string" ? values : [...values]]),
  );
}
