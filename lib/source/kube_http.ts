/**
 * GET requests to the API server, with streamed answers.
 *
 * `fetch` carries them; a server that must not be verified, or must be verified under another name, is reached through
 * `node:tls`, because fetch can do neither.
 *
 * @module
 */
import { Agent, request } from "node:http";
import { Readable } from "node:stream";
import { connect } from "node:tls";
import { CredentialReader, type Credentials } from "./kube_credentials.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { TokenBucket } from "./token_bucket.ts";

/** An answer whose body may still be arriving. */
export interface HttpAnswer {
  readonly status: number;
  /** Seconds to wait, from `Retry-After`; null if there is none. */
  readonly retryAfterSeconds: number | null;
  readonly body: ReadableStream<Uint8Array>;
}

/** Settings of a {@linkcode KubeClient}. */
export interface KubeClientOptions {
  readonly access: ClusterAccess;
  /** Requests per second; negative for no limit. */
  readonly qps: number;
  readonly burst: number;
  readonly userAgent: string;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** Talks to one API server. */
export class KubeClient {
  readonly #access: ClusterAccess;
  readonly #credentials: CredentialReader;
  readonly #bucket: TokenBucket;
  readonly #userAgent: string;
  #client: { readonly fingerprint: string; readonly http: Deno.HttpClient } | undefined;

  constructor(options: KubeClientOptions) {
    this.#access = options.access;
    this.#credentials = new CredentialReader(options.access, options.nowMs);
    this.#bucket = new TokenBucket({ perSecond: options.qps, burst: options.burst, nowMs: options.nowMs });
    this.#userAgent = options.userAgent;
  }

  /** The server's URL, for logs. */
  get server(): string {
    return this.#access.server;
  }

  /**
   * Sends a GET for `path` (with query) and resolves when the headers are there. A refused credential is read anew once.
   * `paced: false` is for what continues an earlier request: it does not count against the limit of requests.
   *
   * @throws {Error} if the server cannot be reached or a credential cannot be read
   */
  async get(path: string, signal: AbortSignal, { paced = true } = {}): Promise<HttpAnswer> {
    if (paced) await this.#bucket.take(signal);
    const answer = await this.#send(path, signal);
    if (answer.status !== 401) return answer;
    await answer.body.cancel();
    this.#credentials.invalidate();
    return await this.#send(path, signal);
  }

  /** Closes idle connections. */
  close(): void {
    this.#client?.http.close();
    this.#client = undefined;
  }

  async #send(path: string, signal: AbortSignal): Promise<HttpAnswer> {
    const credentials = await this.#credentials.read();
    const headers: Record<string, string> = { accept: "application/json", "user-agent": this.#userAgent };
    if (credentials.authorization !== null) headers["authorization"] = credentials.authorization;
    const { insecureSkipTlsVerify, tlsServerName, server } = this.#access;
    if (server.startsWith("https:") && (insecureSkipTlsVerify || tlsServerName !== "")) {
      return await this.#sendOverTls(path, headers, credentials, signal);
    }
    const response = await fetch(server + path, { headers, signal, client: this.#clientFor(credentials) });
    return {
      status: response.status,
      retryAfterSeconds: retryAfter(response.headers.get("retry-after")),
      body: response.body ?? emptyBody(),
    };
  }

  /** The pool of connections made with these credentials; a new certificate needs new connections. */
  #clientFor({ certificateAuthority, clientCertificate }: Credentials): Deno.HttpClient {
    const fingerprint = JSON.stringify([certificateAuthority, clientCertificate]);
    if (this.#client?.fingerprint === fingerprint) return this.#client.http;
    this.#client?.http.close();
    const { proxyUrl } = this.#access;
    const http = Deno.createHttpClient({
      ...(certificateAuthority === null ? {} : { caCerts: [certificateAuthority] }),
      ...(clientCertificate === null
        ? {}
        : { cert: clientCertificate.certificate, key: clientCertificate.key }),
      ...(proxyUrl === "" ? {} : { proxy: { url: proxyUrl } }),
    });
    this.#client = { fingerprint, http };
    return http;
  }

  #sendOverTls(
    path: string,
    headers: Record<string, string>,
    { certificateAuthority, clientCertificate }: Credentials,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const { insecureSkipTlsVerify, tlsServerName, proxyUrl, origin } = this.#access;
    if (proxyUrl !== "") {
      throw new Error(
        `${origin}: proxy-url cannot be combined with insecure-skip-tls-verify or tls-server-name`,
      );
    }
    const url = new URL(this.#access.server + path);
    const host = url.hostname.replace(/^\[|\]$/g, "");
    const port = Number(url.port || 443);
    return new Promise((resolve, reject) => {
      const outgoing = request({
        host,
        port,
        path: url.pathname + url.search,
        headers: { ...headers, host: url.host },
        agent: new Agent({ keepAlive: false }),
        signal,
        createConnection: () =>
          connect({
            host,
            port,
            rejectUnauthorized: !insecureSkipTlsVerify,
            servername: tlsServerName === "" ? host : tlsServerName,
            ...(certificateAuthority === null ? {} : { ca: certificateAuthority }),
            ...(clientCertificate === null
              ? {}
              : { cert: clientCertificate.certificate, key: clientCertificate.key }),
          }),
      }, (incoming) => {
        resolve({
          status: incoming.statusCode ?? 0,
          retryAfterSeconds: retryAfter(incoming.headers["retry-after"] ?? null),
          body: Readable.toWeb(incoming) as ReadableStream<Uint8Array>,
        });
      });
      outgoing.on("error", reject);
      outgoing.end();
    });
  }
}

function retryAfter(header: string | null): number | null {
  const seconds = Number(header);
  return header === null || !Number.isFinite(seconds) ? null : seconds;
}

function emptyBody(): ReadableStream<Uint8Array> {
  return new ReadableStream({ start: (controller) => controller.close() });
}
