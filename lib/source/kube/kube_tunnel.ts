/**
 * Ways to the API server through a proxy, on which TLS of our own can run: HTTP and HTTPS proxies by CONNECT, SOCKS5 by the
 * package `socks`, which client-node uses for that, too.
 *
 * @module
 */
import { type IncomingMessage, request } from "node:http";
import { isIP, type Socket } from "node:net";
import { connect, rootCertificates } from "node:tls";
import { joinHostPort } from "../../model/ip.ts";
import { base64Of } from "../../text/base64.ts";
import { openSocket, whileOpening } from "./kube_socket.ts";

/** What a tunnel needs to know. */
export interface TunnelOptions {
  /** http, https or socks5, perhaps with user and password. */
  readonly proxyUrl: string;
  /** Where it leads, an IPv6 address without brackets. */
  readonly host: string;
  readonly port: number;
  /** The cluster's, PEM: as in client-go, it may have signed the certificate of an https proxy, beside those that the runtime knows. */
  readonly certificateAuthority: string | null;
  /** As in client-go, also for an https proxy. */
  readonly insecureSkipTlsVerify: boolean;
}

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
 * A connection that a proxy passes on. Names are left to the proxy.
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
    const { statusCode, socket } = await whileOpening(
      outgoing,
      "connect",
      signal,
      ({ statusCode }: IncomingMessage, socket: Socket) => ({ statusCode, socket }),
    );
    if (statusCode === 200) return socket;
    throw new Error(`answers CONNECT ${target} with status ${statusCode}`);
  } catch (error) {
    way.destroy();
    throw error;
  }
}

/** A verified connection to an https proxy. */
function openSecure(
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
  return whileOpening(socket, "secureConnect", signal, () => socket);
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
