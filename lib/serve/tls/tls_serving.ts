/**
 * Serving over TLS, with what is in the files now: loaded only where it is configured, as the runtime's Node modules cost memory.
 *
 * @module
 */
import type { ServingConfig } from "../../config/types.ts";
import { systemClock, wallClockMs } from "../../kernel/clock.ts";
import { errorText, type Logger } from "../../observe/log.ts";
import type { ServingMetrics } from "../../observe/metrics_serving.ts";
import type { Handler, Secure } from "../http_listener.ts";
import { authenticated, byTokens, type Judge } from "./bearer_authentication.ts";
import { readServingFiles, type ServingMaterial } from "./serving_files.ts";
import { tlsSocket } from "./tls_socket.ts";

/** What {@linkcode TlsServing} needs. */
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
/** Files are replaced one after the other: those that do not fit are looked at once more after this time. */
const SETTLE_MS = 1_000;

/** See the module. Connections that are open go on with what they began with. */
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

  /** For servers whose clients need the certificate that the configuration says. */
  readonly secure: Secure = (socket) => this.#secure(socket, this.#material.ca);

  /** For servers that any client may ask. */
  readonly secureForAll: Secure = (socket) => this.#secure(socket, null);

  /** `handler`, for those whose tokens count, if any is needed. */
  guard(handler: Handler): Handler {
    const { config, judge, metrics } = this.#options;
    const needed = judge ??
      (config.bearerTokenFile === "" ? null : byTokens(() => this.#material.tokenHashes ?? []));
    return needed === null ? handler : authenticated(handler, needed, (reason) => metrics.refused(reason));
  }

  /** Looks at the files no more. */
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
        expires: dateText(material.validToMs),
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
    const values = { file: config.tlsCertFile, from: dateText(validFromMs), expires: dateText(validToMs) };
    log.warn("The serving certificate does not count now: clients that check it will not connect", values);
  }
}

function dateText(ms: number): string {
  return new Date(ms).toISOString();
}
