/**
 * Serving over TLS, with what is in the files now, and to clients with a valid token, if one is needed. Loaded only where it is configured:
 * the runtime's Node modules cost memory.
 *
 * @module
 */
import type { ServingConfig } from "../../config/types.ts";
import { systemClock, wallClockMs } from "../../kernel/clock.ts";
import { errorText, type Logger } from "../../observe/log.ts";
import type { RefusalReason, ServingMetrics } from "../../observe/metrics_kproxy.ts";
import type { Handler, Peer, Secure } from "../http_listener.ts";
import { readServingFiles, type ServingMaterial, tokenHash } from "./serving_files.ts";
import { tlsSocket } from "./tls_socket.ts";
import { timingSafeEqual } from "node:crypto";
import { textAnswer } from "../http_answer.ts";
import { isoTime } from "../../text/words.ts";

/** Dependencies of {@linkcode TlsServing}. */
export interface TlsServingOptions {
  readonly config: ServingConfig;
  readonly log: Logger;
  readonly metrics: ServingMetrics;
  /** Decides about tokens; absent: those of `bearerTokenFile` count, if there is one. */
  readonly judge?: Judge | undefined;
  /** How often the files are looked at, in milliseconds. @default {10000} */
  readonly pollMs?: number;
}

const POLL_MS = 10_000;
/** Files are replaced one after the other: a pair that does not fit is read again after this time. */
const SETTLE_MS = 1_000;

/** TLS and token checks of the servers. Open connections go on with the files that they began with. */
export class TlsServing {
  readonly #options: TlsServingOptions;
  readonly #stop = new AbortController();
  #material: ServingMaterial;
  #problem = "";
  /** The certificate that was logged as invalid. */
  #toldOf = "";
  readonly #polling: Promise<void>;

  private constructor(options: TlsServingOptions, material: ServingMaterial) {
    this.#options = options;
    this.#material = material;
    this.#take(material);
    this.#polling = this.#poll();
  }

  /** @throws {ConfigError} if what the files hold cannot be used */
  static async open(options: TlsServingOptions): Promise<TlsServing> {
    return new TlsServing(options, await readServingFiles(options.config));
  }

  /** TLS for servers whose clients need a certificate, if the configuration says so. */
  readonly secure: Secure = (socket) => this.#secure(socket, this.#material.ca);

  /** TLS for servers that any client may ask. */
  readonly secureForAll: Secure = (socket) => this.#secure(socket, null);

  /** Limits `handler` to requests with a valid token, if one is needed. */
  guard(handler: Handler): Handler {
    const { config, judge, metrics } = this.#options;
    const needed = judge ??
      (config.bearerTokenFile === "" ? null : byTokens(() => this.#material.tokenHashes ?? []));
    return needed === null ? handler : authenticated(handler, needed, (reason) => metrics.refused(reason));
  }

  /** Stops looking at the files. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#polling;
  }

  #secure(socket: Parameters<Secure>[0], ca: string | null): ReturnType<Secure> {
    const { config, metrics } = this.#options;
    const { cert, key } = this.#material;
    const onRefused = (): void => metrics.refused("handshake");
    return tlsSocket(socket, { cert, key, ca, minVersion: config.tlsMinVersion, onRefused });
  }

  async #poll(): Promise<void> {
    const { pollMs = POLL_MS } = this.#options;
    const { signal } = this.#stop;
    for (;;) {
      await systemClock.sleep(pollMs, signal);
      if (signal.aborted) return;
      await this.#look();
      this.#checkDates();
    }
  }

  async #look(): Promise<void> {
    const { config, log } = this.#options;
    const again = async (): Promise<ServingMaterial> => {
      await systemClock.sleep(SETTLE_MS, this.#stop.signal);
      return await readServingFiles(config);
    };
    try {
      const material = await readServingFiles(config).catch(again);
      if (material.fingerprint === this.#material.fingerprint && this.#problem === "") return;
      this.#take(material);
      log.info("Certificate, key, client CA and tokens were read anew", {
        expires: isoTime(material.validToMs),
      });
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#failed(errorText(error));
    }
  }

  #failed(problem: string): void {
    const { log, metrics } = this.#options;
    if (problem === this.#problem) return;
    this.#problem = problem;
    metrics.failed();
    log.error("Changed files for TLS cannot be used, those read before stay in use", problem);
  }

  #take(material: ServingMaterial): void {
    const { log, metrics } = this.#options;
    this.#material = material;
    this.#problem = "";
    metrics.taken(material.validToMs);
    for (const file of material.openFiles) {
      log.warn("A file with secrets can be read or written by any user of the node", { file });
    }
    this.#checkDates();
  }

  #checkDates(): void {
    const { fingerprint, validFromMs, validToMs } = this.#material;
    const nowMs = wallClockMs();
    if ((nowMs >= validFromMs && nowMs < validToMs) || this.#toldOf === fingerprint) return;
    this.#toldOf = fingerprint;
    const { log, config } = this.#options;
    const values = { file: config.tlsCertFile, from: isoTime(validFromMs), expires: isoTime(validToMs) };
    log.warn("The serving certificate does not count now: clients that check it will not connect", values);
  }
}

/** Decision about a request. */
export type Verdict = "allowed" | Exclude<RefusalReason, "handshake">;

/** A request that is to be decided about. */
export interface Wanted {
  readonly token: string;
  readonly verb: string;
  /** Without a query. */
  readonly path: string;
}

/** Decides about a token; never rejects. */
export type Judge = (wanted: Wanted, peer: Peer, stopping: AbortSignal) => Verdict | Promise<Verdict>;

/** Source: RFC 6750; the tokens of service accounts have some 1,500 characters. */
const BEARER_REGEXP = /^Bearer +([A-Za-z0-9._~+/-]{1,16384}=*)$/i;

const ANSWERS: Readonly<Record<Exclude<Verdict, "allowed">, { status: number; text: string }>> = {
  unauthenticated: { status: 401, text: "Unauthorized\n" },
  forbidden: { status: 403, text: "Forbidden\n" },
  undecided: { status: 503, text: "the API server cannot be asked who this is: try again later\n" },
};

/** Limits `handler` to requests that `judge` allows. */
export function authenticated(
  handler: Handler,
  judge: Judge,
  onRefused: (reason: Exclude<Verdict, "allowed">) => void,
): Handler {
  return async (request, peer, stopping) => {
    const token = BEARER_REGEXP.exec(request.headers.get("authorization") ?? "")?.[1];
    const { pathname: path } = new URL(request.url);
    const verdict = token === undefined
      ? "unauthenticated"
      // Source: `RequestInfo` of Kubernetes' API server, of what is no resource: the method in small letters.
      : await judge({ token, verb: request.method.toLowerCase(), path }, peer, stopping);
    if (verdict === "allowed") return handler(request, peer, stopping);
    onRefused(verdict);
    const { status, text } = ANSWERS[verdict];
    const headers = verdict === "unauthenticated" ? { "www-authenticate": "Bearer" } : {};
    return textAnswer(text, { status, headers });
  };
}

/** Allows the tokens whose hashes `hashes` yields at the time. */
export function byTokens(hashes: () => readonly Uint8Array[]): Judge {
  return ({ token }) => {
    const given = tokenHash(token);
    const isKnown = hashes().filter((known) => timingSafeEqual(known, given)).length > 0;
    return isKnown ? "allowed" : "unauthenticated";
  };
}
