/**
 * Requests over own TLS connections, for servers that must not be verified or must be verified under another name.
 *
 * @module
 */
import { type EventEmitter, once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { createConnection, isIP, Socket } from "node:net";
import { Readable } from "node:stream";
import { connect, rootCertificates, type TLSSocket } from "node:tls";
import { answerOf, type HttpAnswer } from "./response.ts";
import type { Credentials } from "./credentials.ts";
import { type KubeTransport, pemsOf, type TransportRequest } from "./kube_client.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { joinHostPort } from "../../model/ip.ts";
import { base64Of } from "../../text/bytes.ts";

/** Transport over node:tls. Each request has a connection of its own. */
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
        headers: { ...wanted.headers, host: url.host, connection: "close" },
        signal,
        createConnection: () => secured,
      }, (incoming) => {
        const body = Readable.toWeb(incoming) as ReadableStream<Uint8Array<ArrayBuffer>>;
        const header = (name: string): string | null => [incoming.headers[name]].flat()[0] ?? null;
        resolve(answerOf(incoming.statusCode ?? 0, header, body));
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
    // Node's TLS would find a fault only when it connects.
    Deno.createHttpClient(pemsOf(credentials)).close();
  }

  close(): void {
    // Every connection ends with its answer.
  }

  /** An open connection to the server; undefined if TLS may open it itself. */
  async #way(
    { host, port, name }: { readonly host: string; readonly port: number; readonly name: string },
    { credentials }: TransportRequest,
    signal: AbortSignal,
  ): Promise<Socket | undefined> {
    const { proxyUrl, insecureSkipTlsVerify } = this.#access;
    if (proxyUrl !== "") {
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
    // If TLS fails, the caller has to close the connection below it.
    if (target instanceof Socket) secured.once("close", () => target.destroy());
    return secured;
  }
}

/**
 * Options of {@linkcode openTunnel}. As in client-go, the authority and `insecureSkipTlsVerify` count for an https proxy, too; the
 * authorities that the runtime knows count beside the cluster's.
 */
export type TunnelOptions =
  & Pick<ClusterAccess, "proxyUrl" | "insecureSkipTlsVerify">
  & Pick<Credentials, "certificateAuthority">
  /** Destination of the tunnel, an IPv6 address without brackets. */
  & { readonly host: string; readonly port: number };

interface Proxy {
  readonly protocol: string;
  /** Without user and password, for messages. */
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { "http:": 80, "https:": 443, "socks5:": 1080 };

/**
 * Opens a connection through a proxy, which resolves names.
 *
 * @throws {Error} naming the proxy, never its password, if it cannot be reached or verified, or refuses
 * @throws what `signal` was aborted with
 */
export async function openTunnel(options: TunnelOptions, signal: AbortSignal): Promise<Socket> {
  const proxy = proxyAt(options.proxyUrl);
  const open = proxy.protocol === "socks5:" ? throughSocks : throughConnect;
  try {
    return await open(proxy, options, signal);
  } catch (error) {
    signal.throwIfAborted();
    // Without a cause: that of `socks` holds the password.
    throw new Error(`Proxy ${proxy.name}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function proxyAt(proxyUrl: string): Proxy {
  const { protocol, host, hostname, port, username, password } = new URL(proxyUrl);
  return {
    protocol,
    name: `${protocol}//${host}`,
    host: hostname.replace(/^\[|\]$/g, ""),
    port: Number(port || DEFAULT_PORTS[protocol]),
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
  };
}

async function throughConnect(proxy: Proxy, options: TunnelOptions, signal: AbortSignal): Promise<Socket> {
  const { host, port } = options;
  const target = joinHostPort(host, port);
  const login = proxy.user === ""
    ? {}
    : { "proxy-authorization": `Basic ${base64Of(`${proxy.user}:${proxy.password}`)}` };
  // Opened here: a request that is given up while it connects would leave its connection open (Deno 2.9.6).
  const way = proxy.protocol === "https:"
    ? await openSecure(proxy, options, signal)
    : await openSocket(proxy.host, proxy.port, signal);
  const outgoing = request({
    host: proxy.host,
    port: proxy.port,
    method: "CONNECT",
    path: target,
    headers: { host: target, ...login },
    createConnection: () => way,
  });
  outgoing.end();
  try {
    const [{ statusCode }, socket] = await opened<[IncomingMessage, Socket]>(outgoing, "connect", signal);
    if (statusCode === 200) return socket;
    throw new Error(`answers CONNECT ${target} with status ${statusCode}`);
  } catch (error) {
    way.destroy();
    throw error;
  }
}

/** A verified connection to an https proxy. */
async function openSecure(
  { host, port }: Proxy,
  { certificateAuthority, insecureSkipTlsVerify }: TunnelOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = connect({
    host,
    port,
    rejectUnauthorized: !insecureSkipTlsVerify,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(certificateAuthority === null ? {} : { ca: [...rootCertificates, certificateAuthority] }),
  });
  await opened(socket, "secureConnect", signal);
  return socket;
}

async function throughSocks(
  { host, port, user, password }: Proxy,
  target: TunnelOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const { SocksClient } = await import("socks");
  // Opened here, because `socks` knows no signals.
  const socket = await openSocket(host, port, signal);
  const end = (): void => void socket.destroy();
  signal.addEventListener("abort", end, { once: true });
  try {
    await SocksClient.createConnection({
      command: "connect",
      proxy: { host, port, type: 5, ...(user === "" ? {} : { userId: user, password }) },
      destination: { host: target.host, port: target.port },
      existing_socket: socket,
    });
    signal.throwIfAborted();
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", end);
  }
}

/**
 * A connection to `host`.
 *
 * @throws {Error} if there is no answer
 * @throws what `signal` was aborted with
 */
export async function openSocket(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  const socket = createConnection({ host, port });
  await opened(socket, "connect", signal);
  return socket;
}

/**
 * Arguments of the `event` that an opening socket or request emits. If it fails, or `signal` aborts before, it is destroyed.
 *
 * @throws what it fails with, or `signal` was aborted with
 */
async function opened<T extends unknown[]>(
  opening: EventEmitter & { destroy(): unknown },
  event: string,
  signal: AbortSignal,
): Promise<T> {
  try {
    return await once(opening, event, { signal }) as T;
  } catch (error) {
    // A destroyed socket may fail once more, and an error without a listener ends the program.
    opening.on("error", () => {});
    opening.destroy();
    signal.throwIfAborted();
    throw error;
  }
}
