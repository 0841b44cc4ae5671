/**
 * Requests by `fetch`, which does all that most clusters need, with a pool of connections.
 *
 * @module
 */
import { type HttpAnswer, retryAfterSeconds } from "./kube_answer.ts";
import type { Credentials } from "./kube_credentials.ts";
import { unpacked } from "./kube_packed.ts";
import type { KubeTransport, TransportRequest } from "./kube_transport.ts";
import type { ClusterAccess } from "./kubeconfig.ts";

/** Idle connections are closed after this time: an old one may be dead without saying so. */
const POOL_IDLE_MS = 10_000;

interface Pool {
  readonly credentials: Credentials;
  readonly http: Deno.HttpClient;
}

/** See the module. */
export class FetchTransport implements KubeTransport {
  readonly #access: ClusterAccess;
  #pool: Pool | undefined;

  constructor(access: ClusterAccess) {
    this.#access = access;
  }

  async send(
    { credentials, method, path, headers, body: sent }: TransportRequest,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    // A redirect would carry our credentials to a place nobody configured.
    const options = {
      method,
      headers: [...linesOf(headers), ...packedAsSent(headers)],
      signal,
      client: this.#poolFor(credentials),
      redirect: "manual",
      ...(sent === undefined ? {} : { body: sent }),
    } as const;
    const response = await fetch(this.#access.server + path, options);
    const body = response.body ?? new Blob().stream();
    return {
      status: response.status,
      retryAfterSeconds: retryAfterSeconds(response.headers.get("retry-after")),
      contentType: response.headers.get("content-type") ?? "",
      date: response.headers.get("date") ?? "",
      body: unpacked(body, response.headers.get("content-encoding") ?? ""),
    };
  }

  check(credentials: Credentials): void {
    if (this.#access.server.startsWith("https:")) this.#poolFor(credentials);
  }

  close(): void {
    this.#pool?.http.close();
    this.#pool = undefined;
  }

  /** The pool of connections made with these credentials; a new certificate needs new connections, open ones go on. */
  #poolFor(credentials: Credentials): Deno.HttpClient {
    if (this.#pool !== undefined && sameConnections(this.#pool.credentials, credentials)) {
      return this.#pool.http;
    }
    const http = Deno.createHttpClient({
      // One connection per request: a dead one must not take the watches of all kinds with it.
      http2: false,
      poolIdleTimeout: POOL_IDLE_MS,
      ...proxyOf(this.#access),
      ...pemsOf(credentials),
    });
    this.#pool?.http.close();
    this.#pool = { credentials, http };
    return http;
  }
}

/** The certificates of an HTTP client, which checks them when it is made. */
export function pemsOf(
  { certificateAuthority, clientCertificate }: Credentials,
): Pick<Deno.CreateHttpClientOptions, "caCerts"> & Partial<Deno.TlsCertifiedKeyPem> {
  return {
    ...(certificateAuthority === null ? {} : { caCerts: [certificateAuthority] }),
    ...(clientCertificate === null
      ? {}
      : { cert: clientCertificate.certificate, key: clientCertificate.key }),
  };
}

/**
 * Keeps fetch from unpacking, so that what is unpacked can be bounded: to a part of a body it does nothing (Deno 2.9.6). Servers
 * pass over a range in units that they do not know (RFC 9110, 14.2).
 */
function packedAsSent(headers: TransportRequest["headers"]): [string, string][] {
  return headers["accept-encoding"] === "identity" ? [] : [["range", "items=0-"]];
}

/** A line for each value. */
function linesOf(headers: TransportRequest["headers"]): [string, string][] {
  return Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [name, value])
  );
}

/** A proxy for fetch. Connecting straight to the server is a "tcp" proxy to it, which works without TLS only. */
function proxyOf({ proxyUrl, bypassProxy, server }: ClusterAccess): { proxy?: Deno.Proxy } {
  if (proxyUrl !== "") return { proxy: { url: proxyUrl } };
  const { hostname, port, protocol } = new URL(server);
  if (!bypassProxy || protocol !== "http:") return {};
  const host = hostname.replace(/^\[|\]$/g, "");
  return { proxy: { transport: "tcp", hostname: host, port: Number(port || 80) } };
}

function sameConnections(one: Credentials, other: Credentials): boolean {
  return one.certificateAuthority === other.certificateAuthority &&
    one.clientCertificate?.certificate === other.clientCertificate?.certificate &&
    one.clientCertificate?.key === other.clientCertificate?.key;
}
