/**
 * Requests to the API server, with streamed answers.
 *
 * @module
 */
import { ConfigError } from "../../errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import { errorText } from "../../observe/log.ts";
import type { ApiAnswer, ApiRequest } from "../../observe/metrics.ts";
import { answerOf, type HttpAnswer, IdleLimit } from "./response.ts";
import { CredentialReader, type Credentials, IssuerError, sameCertificates } from "./credentials.ts";
import type { ClusterAccess, Impersonation } from "./kubeconfig.ts";

/** Settings of a {@linkcode KubeClient}. */
export interface KubeClientOptions {
  readonly access: ClusterAccess;
  /** Requests per second; 0 or less for no limit. */
  readonly qps: number;
  readonly burst: number;
  readonly userAgent: string;
  /** Accept header of requests that read. @default {"application/json"} */
  readonly accept?: string;
  readonly clock: Clock;
  /** Called for every request when its answer begins, or when it got none. */
  readonly onRequest?: (request: ApiRequest) => void;
  /** Called for every answer that was read to its end; a watch has none. */
  readonly onAnswer?: (answer: ApiAnswer) => void;
  /** Starts credential plugins. @default {systemExec} */
  readonly exec?: Exec | undefined;
}

/** A request that writes. */
export interface WriteRequest {
  readonly method: "POST" | "PATCH";
  readonly path: string;
  readonly contentType: string;
  readonly body: string;
}

const JSON_TYPE = "application/json";

/** How long the start waits for the credentials: longer than a credential plugin may take. */
const CREDENTIALS_MS = 90_000;

/** A request; without a method it is a GET. */
type AnyRequest = Pick<WriteRequest, "path"> & Partial<WriteRequest>;

/** Talks to one API server. */
export class KubeClient {
  readonly #options: KubeClientOptions;
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  readonly #credentials: CredentialReader;
  readonly #bucket: TokenBucket;
  #transport: Promise<KubeTransport> | undefined;

  constructor(options: KubeClientOptions) {
    const { access, qps, burst, clock, exec } = options;
    this.#options = options;
    this.#access = access;
    this.#clock = clock;
    this.#credentials = new CredentialReader(access, () => clock.nowMs(), exec);
    this.#bucket = new TokenBucket(qps, burst, clock);
  }

  /** The server's URL, for logs. */
  get server(): string {
    return this.#access.server;
  }

  /** Origin of the access, e.g. the path of the kubeconfig. */
  get origin(): string {
    return this.#access.origin;
  }

  /**
   * Reads the credentials once, without sending them. An issuer of tokens that cannot be asked now is left for later.
   *
   * @throws {ConfigError} if they cannot be had or used
   * @throws what `signal` was aborted with
   */
  async checkCredentials(signal: AbortSignal): Promise<void> {
    using limit = new IdleLimit({ idleMs: CREDENTIALS_MS }, "the credentials' files", signal, this.#clock);
    try {
      const credentials = await this.#credentials.read(limit.signal);
      this.#transport ??= transportTo(this.#access);
      (await this.#transport).check(credentials);
    } catch (cause) {
      signal.throwIfAborted();
      if (cause instanceof IssuerError) return;
      const { origin } = this.#access;
      throw new ConfigError([{ path: "", message: errorText(cause) }], origin, { cause });
    }
  }

  /**
   * Sends a GET for `path` (with query) and resolves when the headers are there. A refused credential is read anew once.
   * `paced: false`: the request does not wait for the limit of requests, and does not count against it.
   *
   * @throws {Error} if the server cannot be reached or a credential cannot be read
   */
  async get(path: string, signal: AbortSignal, { paced = true } = {}): Promise<HttpAnswer> {
    return await this.#request({ path }, signal, paced);
  }

  /**
   * Sends a request that writes, otherwise as {@linkcode get} does.
   *
   * @throws {Error} if the server cannot be reached or a credential cannot be read
   */
  async send(request: WriteRequest, signal: AbortSignal): Promise<HttpAnswer> {
    return await this.#request(request, signal, true);
  }

  /** False if no file holds credentials. */
  get credentialsCanChange(): boolean {
    return this.#credentials.canChange;
  }

  /** True if files hold other credentials than those a request was last sent with. */
  async haveCredentialsChanged(signal: AbortSignal): Promise<boolean> {
    return await this.#credentials.haveChanged(signal);
  }

  /** Closes idle connections, and ends a credential plugin that runs. */
  close(): void {
    this.#credentials.close();
    void this.#transport?.then((transport) => transport.close());
  }

  async #request(request: AnyRequest, signal: AbortSignal, paced: boolean): Promise<HttpAnswer> {
    const startMs = this.#clock.nowMs();
    if (paced) await this.#bucket.take(signal);
    const waitedMs = paced ? this.#clock.nowMs() - startMs : 0;
    const answer = await this.#send(request, waitedMs, signal);
    if (answer.status !== 401) return answer;
    await answer.body.cancel();
    this.#credentials.invalidate();
    return await this.#send(request, waitedMs, signal);
  }

  async #send(request: AnyRequest, waitedMs: number, signal: AbortSignal): Promise<HttpAnswer> {
    const credentials = await this.#credentials.read(signal);
    const { method = "GET", path, body } = request;
    const { host } = new URL(this.server);
    const startMs = this.#clock.nowMs();
    let code = "<error>";
    try {
      const headers = this.#headers(request, credentials);
      const content = body === undefined ? {} : { body };
      this.#transport ??= transportTo(this.#access);
      const transport = await this.#transport;
      const answer = await transport.send({ credentials, method, path, headers, ...content }, signal);
      code = String(answer.status);
      return {
        ...answer,
        onRead: (receivedBytes) => this.#options.onAnswer?.({ method, host, receivedBytes }),
      };
    } finally {
      // A cancelled request has not failed.
      const isUnwanted = code === "<error>" && signal.aborted && isAbortError(signal.reason);
      const durationMs = this.#clock.nowMs() - startMs;
      const sentBytes = new TextEncoder().encode(body).length;
      if (!isUnwanted) this.#options.onRequest?.({ method, host, code, durationMs, waitedMs, sentBytes });
    }
  }

  #headers({ method, contentType }: AnyRequest, { authorization }: Credentials): RequestHeaders {
    const { impersonation, asksForCompression } = this.#access;
    const { accept = JSON_TYPE, userAgent } = this.#options;
    const isRead = method === undefined;
    return {
      accept: isRead ? accept : JSON_TYPE,
      // Sent in any case: fetch would ask for gzip by itself.
      "accept-encoding": asksForCompression && isRead ? "gzip" : "identity",
      "user-agent": userAgent,
      ...(impersonation === null ? {} : impersonationHeaders(impersonation)),
      ...(authorization === null ? {} : { authorization }),
      ...(contentType === undefined ? {} : { "content-type": contentType }),
    };
  }
}

/** The transport that supports the options of `access`. */
async function transportTo(access: ClusterAccess): Promise<KubeTransport> {
  if (!needsOwnTls(access)) return new FetchTransport(access);
  // Loads much of the runtime, and few need it.
  const { TlsTransport } = await import("./tls_transport.ts");
  return new TlsTransport(access);
}

/** True for TLS that fetch cannot do: unverified, verified under another name, or past the environment's proxy. */
function needsOwnTls({ server, insecureSkipTlsVerify, tlsServerName, bypassProxy }: ClusterAccess): boolean {
  return server.startsWith("https:") && (insecureSkipTlsVerify || tlsServerName !== "" || bypassProxy);
}

/** True for the reason of a signal that was aborted without one. */
function isAbortError(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "AbortError";
}

/** A token bucket as client-go's: `clientConnection.qps` and `.burst`. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #clock: Clock;
  #tokens: number;
  #updatedMs: number;

  /**
   * @param perSecond tokens added per second; 0 or less for no limit
   * @param burst tokens it holds at most, and at the start
   */
  constructor(perSecond: number, burst: number, clock: Clock) {
    this.#perSecond = perSecond;
    this.#burst = this.#tokens = burst;
    this.#clock = clock;
    this.#updatedMs = clock.nowMs();
  }

  /** Resolves when a token was taken. @throws what `signal` was aborted with */
  async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#perSecond <= 0) return;
    const nowMs = this.#clock.nowMs();
    const addedTokens = (nowMs - this.#updatedMs) / 1000 * this.#perSecond;
    this.#tokens = Math.min(this.#burst, this.#tokens + addedTokens);
    this.#updatedMs = nowMs;
    // Taken before waiting, so that later requests wait longer.
    this.#tokens -= 1;
    if (this.#tokens >= 0) return;
    await this.#clock.sleep(-this.#tokens / this.#perSecond * 1000, signal);
    signal.throwIfAborted();
  }
}

/** Headers by name; several values have a line each. */
type RequestHeaders = Readonly<Record<string, string | string[]>>;

/** A request to send with a {@linkcode KubeTransport}. */
export interface TransportRequest {
  readonly credentials: Credentials;
  readonly method: string;
  /** With query. */
  readonly path: string;
  readonly headers: RequestHeaders;
  readonly body?: string;
}

/** Sends requests to one API server. */
export interface KubeTransport {
  /**
   * Sends a request and resolves when the headers are there. `signal` ends the connection as long as the body has not been read.
   *
   * @throws {Error} if the server, or the proxy on the way, cannot be reached or verified
   * @throws what `signal` was aborted with
   */
  send(request: TransportRequest, signal: AbortSignal): Promise<HttpAnswer>;
  /**
   * Looks whether connections can be made with these credentials, without making one.
   *
   * @throws {Error} if a certificate or key is broken, or the proxy must not be used
   */
  check(credentials: Credentials): void;
  /** Closes idle connections. */
  close(): void;
}

/** Idle connections are closed after this time: an old one may be dead without saying so. */
const POOL_IDLE_MS = 10_000;

interface Pool {
  readonly credentials: Credentials;
  readonly http: Deno.HttpClient;
}

/** Transport that uses the runtime's fetch. */
class FetchTransport implements KubeTransport {
  readonly #access: ClusterAccess;
  #pool: Pool | undefined;

  constructor(access: ClusterAccess) {
    this.#access = access;
  }

  async send(
    { credentials, method, path, headers, body: sent }: TransportRequest,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    // A redirect would carry the credentials to a server that is not configured.
    const options = {
      method,
      headers: linesOf(headers),
      signal,
      client: this.#poolFor(credentials),
      redirect: "manual",
      ...(sent === undefined ? {} : { body: sent }),
    } as const;
    const response = await fetch(this.#access.server + path, options);
    const body = response.body ?? new Blob().stream();
    return answerOf(response.status, (name) => response.headers.get(name), body);
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
    if (this.#pool !== undefined && sameCertificates(this.#pool.credentials, credentials)) {
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

/** Header lines, one for each value. */
function linesOf(headers: RequestHeaders): [string, string][] {
  const lines = Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [name, value])
  );
  // Keeps fetch from unpacking, so that what is unpacked can be bounded: to a part of a body it does nothing (Deno 2.9.6). Servers pass
  // over a range in units that they do not know (RFC 9110, 14.2).
  return headers["accept-encoding"] === "identity" ? lines : [...lines, ["range", "items=0-"]];
}

/** A proxy for fetch. Connecting straight to the server is a "tcp" proxy to it, which works without TLS only. */
function proxyOf({ proxyUrl, bypassProxy, server }: ClusterAccess): { proxy?: Deno.Proxy } {
  if (proxyUrl !== "") return { proxy: { url: proxyUrl } };
  const { hostname, port, protocol } = new URL(server);
  if (!bypassProxy || protocol !== "http:") return {};
  const host = hostname.replace(/^\[|\]$/g, "");
  return { proxy: { transport: "tcp", hostname: host, port: Number(port || 80) } };
}

/**
 * Headers for impersonation, each with all its values: the server takes every value for one, commas and all.
 *
 * Source: client-go's transport (`Impersonate-User`, `-Uid`, `-Group`, `-Extra-<key>`).
 */
function impersonationHeaders(
  { user, uid, groups, extra }: Impersonation,
): Record<string, string[]> {
  const headers: Record<string, string[]> = { "impersonate-user": [user].map(headerBytes) };
  if (uid !== "") headers["impersonate-uid"] = [uid].map(headerBytes);
  if (groups.length > 0) headers["impersonate-group"] = groups.map(headerBytes);
  for (const [key, values] of Object.entries(extra)) {
    if (values.length > 0) headers[`impersonate-extra-${escapedKey(key)}`] = values.map(headerBytes);
  }
  return headers;
}

/** UTF-8, a character for each byte: headers are bytes. */
function headerBytes(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

/** Characters that a header's name cannot have are written as `%XX`, and so is `%`: the server reads them back. */
function escapedKey(key: string): string {
  return [...new TextEncoder().encode(key)].map((byte) => {
    const character = String.fromCharCode(byte);
    return /[!#$&'*+.^_`|~0-9A-Za-z-]/.test(character)
      ? character
      : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}
