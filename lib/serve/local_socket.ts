/**
 * The server on the Unix socket: root and the user that kproxy runs as may ask everything, and set what can be set.
 *
 * @module
 */
import { type OpenedSocket, openOwnSocket } from "../kernel/own_socket.ts";
import { errorText, type Logger } from "../observe/log.ts";
import type { ConnectionPool } from "../kernel/connection_pool.ts";
import { type Handler, type Listener, serveListener } from "./http_listener.ts";

/** Dependencies of a {@linkcode LocalSocket}. */
export interface LocalSocketOptions {
  /** `kproxy.socket`; `""` for none. */
  readonly path: string;
  readonly handler: Handler;
  readonly log: Logger;
  readonly pool: ConnectionPool;
  /** How often it looks whether its socket is still in its place, in milliseconds. @default {10000} */
  readonly lookMs?: number;
}

const LANE = { server: "socket", most: 32 };
const LOOK_MS = 10_000;

/**
 * Serves until stopped. The socket's file stays: the next kproxy replaces it at once, and a client that comes in
 * between is refused by the kernel.
 */
export class LocalSocket {
  readonly #options: LocalSocketOptions;
  #opened: OpenedSocket | null = null;
  #bound: Listener | null = null;
  #looking: ReturnType<typeof setInterval> | undefined;
  #hasFailed = false;

  constructor(options: LocalSocketOptions) {
    this.#options = options;
  }

  /** Starts; a failure is logged once and retried. */
  start(): void {
    const { path, lookMs = LOOK_MS } = this.#options;
    if (path === "") return;
    this.#open();
    const { log } = this.#options;
    const onFailure = (error: unknown): void =>
      log.info("Cannot look for the socket", { err: errorText(error) }, 2);
    this.#looking = setInterval(() => this.#look().catch(onFailure), lookMs);
  }

  /** Closes it and all its connections. */
  async stop(): Promise<void> {
    clearInterval(this.#looking);
    this.#looking = undefined;
    await this.#close();
  }

  #open(): void {
    const { path, handler, log, pool } = this.#options;
    try {
      this.#opened = openOwnSocket(path);
    } catch (error) {
      if (!this.#hasFailed) {
        log.error("Cannot open the socket, going on without: no command can ask this kproxy", error, {
          path,
        });
      }
      this.#hasFailed = true;
      return;
    }
    this.#hasFailed = false;
    this.#bound = serveListener(this.#opened.listener, {
      handler,
      pool,
      lane: LANE,
      onError: (error) => log.error("Cannot answer a request", error, { server: LANE.server }),
      onAcceptFailure: (error) => {
        log.error("Cannot accept connections, will try again", error, { server: LANE.server, address: path });
      },
    });
    log.info("Listening", { server: LANE.server, addresses: [path] });
  }

  async #close(): Promise<void> {
    const bound = this.#bound;
    this.#bound = null;
    this.#opened = null;
    await bound?.close();
  }

  /** Opens the socket again if its file is gone: another kproxy may have replaced it, or a cleanup removed it. */
  async #look(): Promise<void> {
    if (this.#opened?.isInPlace() === true || await this.#isAnotherThere()) return;
    await this.#close();
    if (this.#looking !== undefined) this.#open();
  }

  async #isAnotherThere(): Promise<boolean> {
    if (this.#opened === null) return false;
    try {
      (await Deno.connect({ transport: "unix", path: this.#options.path })).close();
      return true;
    } catch (error) {
      const { ConnectionRefused, NotFound } = Deno.errors;
      if (error instanceof NotFound || error instanceof ConnectionRefused) return false;
      throw error;
    }
  }
}
