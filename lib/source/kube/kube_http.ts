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
import type { HttpAnswer } from "./kube_answer.ts";
import { impersonationHeaders } from "./impersonation.ts";
import { IdleLimit } from "./kube_idle.ts";
import { IssuerError } from "./kube_credential_error.ts";
import { CredentialReader, type Credentials } from "./kube_credentials.ts";
import { FetchTransport } from "./kube_fetch.ts";
import type { KubeTransport } from "./kube_transport.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { TokenBucket } from "./token_bucket.ts";

/** Settings of a {@linkcode KubeClient}. */
export interface KubeClientOptions {
  readonly access: ClusterAccess;
  /** Requests per second; 0 or less for no limit. */
  readonly qps: number;
  readonly burst: number;
  readonly userAgent: string;
  /** In which forms what is read is wanted. @default {"application/json"} */
  readonly accept?: string;
  readonly clock: Clock;
  /** Told of every request when its answer begins, or that it got none. */
  readonly onRequest?: (request: ApiRequest) => void;
  /** Told of every answer that was read to its end; a watch has none. */
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

/** What one request is made of; by itself a GET. */
interface AnyRequest {
  /** For its turn, in milliseconds. */
  readonly waitedMs: number;
  readonly method?: "GET" | WriteRequest["method"];
  readonly path: string;
  readonly contentType?: string;
  readonly body?: string;
}

/** Talks to one API server. */
export class KubeClient {
  readonly #access: ClusterAccess;
  readonly #credentials: CredentialReader;
  readonly #bucket: TokenBucket;
  readonly #userAgent: string;
  readonly #accept: string;
  readonly #onRequest: (request: ApiRequest) => void;
  readonly #onAnswer: (answer: ApiAnswer) => void;
  readonly #clock: Clock;
  #transport: Promise<KubeTransport> | undefined;

  constructor(options: KubeClientOptions) {
    const { access, qps, burst, userAgent, clock, exec } = options;
    const { accept = JSON_TYPE, onRequest = () => {}, onAnswer = () => {} } = options;
    this.#access = access;
    this.#credentials = new CredentialReader(access, () => clock.nowMs(), exec);
    this.#bucket = new TokenBucket({ perSecond: qps, burst, clock });
    this.#userAgent = userAgent;
    this.#accept = accept;
    this.#onRequest = onRequest;
    this.#onAnswer = onAnswer;
    this.#clock = clock;
  }

  /** The server's URL, for logs. */
  get server(): string {
    return this.#access.server;
  }

  /**
   * Reads the credentials once, without sending them. An issuer of tokens that cannot be asked now is left for later.
   *
   * @throws {ConfigError} if they cannot be had or used
   * @throws what `signal` was aborted with
   */
  async checkCredentials(signal: AbortSignal): Promise<void> {
    using limit = new IdleLimit(CREDENTIALS_MS, "the credentials' files", signal, this.#clock);
    try {
      const credentials = await this.#credentials.read(limit.signal);
      (await this.#openTransport()).check(credentials);
    } catch (cause) {
      signal.throwIfAborted();
      if (cause instanceof IssuerError) return;
      const { origin } = this.#access;
      throw new ConfigError([{ path: "", message: errorText(cause) }], origin, { cause });
    }
  }

  /**
   * Sends a GET for `path` (with query) and resolves when the headers are there. A refused credential is read anew once.
   * `paced: false` is for what must not wait for its turn: it does not count against the limit of requests.
   *
   * @throws {Error} if the server cannot be reached or a credential cannot be read
   */
  async get(path: string, signal: AbortSignal, { paced = true } = {}): Promise<HttpAnswer> {
    const waitedMs = paced ? await this.#takeTurn(signal) : 0;
    return await this.#sendWithCredentials({ path, waitedMs }, signal);
  }

  /**
   * Sends a request that writes, otherwise as {@linkcode get} does.
   *
   * @throws {Error} if the server cannot be reached or a credential cannot be read
   */
  async send(request: WriteRequest, signal: AbortSignal): Promise<HttpAnswer> {
    const waitedMs = await this.#takeTurn(signal);
    return await this.#sendWithCredentials({ ...request, waitedMs }, signal);
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

  /** Waits until the limit of requests allows one; resolves to how long that was, in milliseconds. */
  async #takeTurn(signal: AbortSignal): Promise<number> {
    const startMs = this.#clock.nowMs();
    await this.#bucket.take(signal);
    return this.#clock.nowMs() - startMs;
  }

  async #sendWithCredentials(request: AnyRequest, signal: AbortSignal): Promise<HttpAnswer> {
    const answer = await this.#send(request, signal);
    if (answer.status !== 401) return answer;
    await answer.body.cancel();
    this.#credentials.invalidate();
    return await this.#send(request, signal);
  }

  async #send(request: AnyRequest, signal: AbortSignal): Promise<HttpAnswer> {
    const credentials = await this.#credentials.read(signal);
    const startMs = this.#clock.nowMs();
    const { method = "GET", waitedMs, body = "" } = request;
    const { host } = new URL(this.server);
    let code = "<error>";
    try {
      const answer = await this.#sendWith(credentials, request, signal);
      code = String(answer.status);
      return { ...answer, onRead: (receivedBytes) => this.#onAnswer({ method, host, receivedBytes }) };
    } finally {
      // What nobody wants any more has not failed.
      const isUnwanted = code === "<error>" && signal.aborted && isAbortError(signal.reason);
      const durationMs = this.#clock.nowMs() - startMs;
      const sentBytes = new TextEncoder().encode(body).length;
      if (!isUnwanted) this.#onRequest({ method, host, code, durationMs, waitedMs, sentBytes });
    }
  }

  async #sendWith(
    credentials: Credentials,
    { path, method = "GET", contentType, body }: AnyRequest,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const { impersonation, asksForCompression } = this.#access;
    const headers: Record<string, string | readonly string[]> = {
      accept: method === "GET" ? this.#accept : JSON_TYPE,
      // Said in any case: fetch would ask for gzip by itself.
      "accept-encoding": asksForCompression && method === "GET" ? "gzip" : "identity",
      "user-agent": this.#userAgent,
      ...(impersonation === null ? {} : impersonationHeaders(impersonation)),
    };
    if (credentials.authorization !== null) headers["authorization"] = credentials.authorization;
    if (contentType !== undefined) headers["content-type"] = contentType;
    const content = body === undefined ? {} : { body };
    const transport = await this.#openTransport();
    return await transport.send({ credentials, method, path, headers, ...content }, signal);
  }

  #openTransport(): Promise<KubeTransport> {
    return this.#transport ??= transportTo(this.#access);
  }
}

/** The transport that can do what `access` asks for. */
async function transportTo(access: ClusterAccess): Promise<KubeTransport> {
  if (!needsOwnTls(access)) return new FetchTransport(access);
  // Loads much of the runtime, and few need it.
  const { TlsTransport } = await import("./kube_tls.ts");
  return new TlsTransport(access);
}

/** True for what fetch cannot do: not verify, verify under another name, or not use the environment's proxy. */
function needsOwnTls({ server, insecureSkipTlsVerify, tlsServerName, bypassProxy }: ClusterAccess): boolean {
  return server.startsWith("https:") && (insecureSkipTlsVerify || tlsServerName !== "" || bypassProxy);
}

/** True for the reason of a signal that was aborted without one. */
function isAbortError(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "AbortError";
}
