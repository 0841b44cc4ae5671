/**
 * Requests over a TLS connection of our own, for servers that must not be verified or must be verified under another name.
 *
 * @module
 */
import { request } from "node:http";
import { createConnection, isIP, Socket } from "node:net";
import { Readable } from "node:stream";
import { connect, type TLSSocket } from "node:tls";
import { type HttpAnswer, retryAfterSeconds } from "./kube_answer.ts";
import type { Credentials } from "./kube_credentials.ts";
import type { ClusterAccess } from "./kubeconfig.ts";

/** One request. */
export interface TlsRequest {
  readonly access: ClusterAccess;
  readonly credentials: Credentials;
  readonly method: string;
  /** With query. */
  readonly path: string;
  /** Those with several values have a line for each. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: string;
}

/**
 * Sends a request on a connection of its own and resolves when the headers are there.
 *
 * @throws {Error} if the server or the proxy cannot be reached or verified
 */
export async function sendOverTls(wanted: TlsRequest, signal: AbortSignal): Promise<HttpAnswer> {
  const url = new URL(wanted.access.server + wanted.path);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = Number(url.port || 443);
  const { proxyUrl, tlsServerName } = wanted.access;
  const name = (tlsServerName === "" ? host : tlsServerName).replace(/^\[|\]$/g, "");
  const socket = proxyUrl !== ""
    ? await openTunnel(proxyUrl, `${url.hostname}:${port}`, signal)
    // TLS has no server names that are addresses: it is verified against that of the host, which here is another one.
    : isIP(name) !== 0 && name !== host
    ? await openSocket(host, port, signal)
    : undefined;
  return await new Promise((resolve, reject) => {
    const outgoing = request({
      host,
      port,
      method: wanted.method,
      path: url.pathname + url.search,
      headers: { ...linesOf(wanted.headers), host: url.host, connection: "close" },
      signal,
      createConnection: () => secure(wanted, name, socket ?? { host, port }),
    }, (incoming) => {
      resolve({
        status: incoming.statusCode ?? 0,
        retryAfterSeconds: retryAfterSeconds(incoming.headers["retry-after"] ?? null),
        contentType: incoming.headers["content-type"] ?? "",
        body: Readable.toWeb(incoming) as ReadableStream<Uint8Array>,
      });
    });
    outgoing.on("error", reject);
    outgoing.end(wanted.body);
  });
}

/** A line for each value. */
function linesOf(headers: TlsRequest["headers"]): Record<string, string | string[]> {
  return Object.fromEntries(
    Object.entries(headers).map((
      [name, values],
    ) => [name, typeof values === "string" ? values : [...values]]),
  );
}

/** TLS to `target`, which must be `name`. */
function secure(
  { access, credentials }: TlsRequest,
  name: string,
  target: Socket | { readonly host: string; readonly port: number },
): TLSSocket {
  const { certificateAuthority, clientCertificate } = credentials;
  return connect({
    ...(target instanceof Socket ? { socket: target, host: name } : target),
    rejectUnauthorized: !access.insecureSkipTlsVerify,
    ...(isIP(name) === 0 ? { servername: name } : {}),
    ...(certificateAuthority === null ? {} : { ca: certificateAuthority }),
    ...(clientCertificate === null
      ? {}
      : { cert: clientCertificate.certificate, key: clientCertificate.key }),
  });
}

function openSocket(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host, port });
    const end = (): void => void socket.destroy(new Error("The connection is not wanted any more"));
    signal.addEventListener("abort", end, { once: true });
    socket.once("error", reject);
    socket.once("connect", () => {
      signal.removeEventListener("abort", end);
      socket.off("error", reject);
      resolve(socket);
    });
    if (signal.aborted) end();
  });
}

/** A connection to `target` (`host:port`) through an HTTP proxy. */
function openTunnel(proxyUrl: string, target: string, signal: AbortSignal): Promise<Socket> {
  const proxy = new URL(proxyUrl);
  if (proxy.protocol !== "http:") {
    throw new Error(
      `Proxy ${proxy.protocol}//${proxy.host}: with insecure-skip-tls-verify or tls-server-name only http proxies work`,
    );
  }
  const login = proxy.username === "" ? {} : {
    "proxy-authorization": `Basic ${
      btoa(`${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`)
    }`,
  };
  return new Promise((resolve, reject) => {
    const outgoing = request({
      host: proxy.hostname.replace(/^\[|\]$/g, ""),
      port: Number(proxy.port || 80),
      method: "CONNECT",
      path: target,
      headers: { host: target, ...login },
      signal,
    });
    outgoing.on("connect", (answer, socket) => {
      if (answer.statusCode === 200) return resolve(socket as Socket);
      socket.destroy();
      reject(new Error(`Proxy ${proxy.host} answers CONNECT ${target} with status ${answer.statusCode}`));
    });
    outgoing.on("error", reject);
    outgoing.end();
  });
}
