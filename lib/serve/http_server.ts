/**
 * A server at a configured address that keeps trying to be there.
 *
 * @module
 */
import { splitHostPort } from "../model/ip.ts";
import { errorText, type Logger } from "../observe/log.ts";
import { addressHolder } from "./http_get.ts";
import type { ConnectionPool, Lane } from "../kernel/connection_pool.ts";
import { type Handler, listen, type Listener, type Secure } from "./http_listener.ts";

/** Dependencies of an {@linkcode HttpServer}. */
export interface HttpServerOptions {
  /** For the log: `healthz`, `metrics`. */
  readonly name: string;
  /** `IP:port`, or `""` for no server at all. */
  readonly address: string;
  readonly handler: Handler;
  /** Speaks TLS on each connection. @default {plain HTTP} */
  readonly secure?: Secure | undefined;
  /** `bindAddressHardFail`: the first failure to listen is final. */
  readonly hardFail: boolean;
  readonly log: Logger;
  /** The pool of all servers together. */
  readonly pool: ConnectionPool;
  /** Most connections that it may have open. */
  readonly most: number;
  /** Pause before listening is tried again, in milliseconds. @default {5000} */
  readonly retryMs?: number;
  /**
   * Called when it cannot listen, once until it can, with the program at the address if it says so; or when it cannot accept. Not
   * with `hardFail` at the start.
   */
  readonly onListenFailure?: ((problem: string) => void) | undefined;
}

const RETRY_MS = 5_000;

/** Listens until stopped; an address that is taken is tried again every 5 s. */
export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #host: string;
  readonly #port: number;
  readonly #lane: Lane;
  #listener: Listener | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  readonly #stop = new AbortController();
  #asking: Promise<void> = Promise.resolve();
  #failures = 0;

  /** @throws {TypeError} if the address is not `IP:port` */
  constructor(options: HttpServerOptions) {
    this.#options = options;
    this.#lane = { server: options.name, most: options.most };
    [this.#host, this.#port] = options.address === "" ? ["", 0] : splitHostPort(options.address);
  }

  /** Addresses that it listens on now, e.g. `[::]:10256`; empty if it does not. */
  get addresses(): readonly string[] {
    return this.#listener?.addresses ?? [];
  }

  /** The port it listens on now; 0 if it does not. */
  get port(): number {
    return this.#listener?.port ?? 0;
  }

  /**
   * @param signal ends the search for the program that has the address
   * @throws {Error} with `hardFail`, if it cannot listen; says which program has the address, if that one says so
   */
  async start(signal: AbortSignal = this.#stop.signal): Promise<void> {
    const { address, name, hardFail } = this.#options;
    if (address === "") return;
    try {
      this.#listen();
    } catch (cause) {
      if (!hardFail) return this.#tryLater(cause);
      const holder = await this.#holder(cause, signal);
      const problem = `Cannot listen on ${address} for ${name}: ${errorText(cause)}`;
      throw new Error(holder === "" ? problem : `${problem}; ${holder}`, { cause });
    }
  }

  /** Closes the port and all connections. */
  async stop(): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#retry);
    const listener = this.#listener;
    this.#listener = undefined;
    await Promise.all([listener?.close(), this.#asking]);
  }

  #listen(): void {
    const { name, address, handler, secure, log, pool, onListenFailure } = this.#options;
    const listener = listen({
      host: this.#host,
      port: this.#port,
      handler,
      secure,
      onError: (error) => log.error("Cannot answer a request", error, { server: name }),
      onAcceptFailure: (error) => {
        log.error("Cannot accept connections, will try again", error, { server: name, address });
        onListenFailure?.(`cannot accept connections on ${address}: ${errorText(error)}`);
      },
      pool,
      lane: this.#lane,
    });
    this.#listener = listener;
    this.#failures = 0;
    log.info("Listening", { server: name, addresses: listener.addresses });
    void listener.finished.then(() => {
      if (this.#stop.signal.aborted) return;
      this.#listener = undefined;
      this.#tryLater(new Error("it stopped listening by itself"));
    });
  }

  #tryLater(error: unknown): void {
    const { address, name, log, retryMs = RETRY_MS } = this.#options;
    const values = { server: name, address, retryMs };
    this.#failures++;
    this.#options.pool.failed(this.#lane);
    if (this.#failures === 1) {
      log.error("Cannot listen, will try again", error, values);
      this.#asking = this.#reportHolder(error);
    } else log.info("Still cannot listen", { ...values, failures: this.#failures, err: errorText(error) }, 2);
    this.#retry = setTimeout(() => {
      try {
        this.#listen();
      } catch (again) {
        this.#tryLater(again);
      }
    }, retryMs);
  }

  /** Logs the first failure in a row, after asking the program at the address. */
  async #reportHolder(error: unknown): Promise<void> {
    const { address, name, log, onListenFailure } = this.#options;
    const holder = await this.#holder(error, this.#stop.signal);
    if (holder !== "") log.warn("Another program has the address", { server: name, address, holder });
    const problem = `cannot listen on ${address}: ${errorText(error)}`;
    onListenFailure?.(holder === "" ? problem : `${problem}; ${holder}`);
  }

  /** The program that has the address; `""` if it does not say. */
  async #holder(error: unknown, signal: AbortSignal): Promise<string> {
    if (!(error instanceof Deno.errors.AddrInUse)) return "";
    return await addressHolder({ host: this.#host, port: this.#port, signal });
  }
}
