/**
 * The state of the connection to an API server, shared by everything that lists and watches there: trouble is told once and
 * then rarely, and when one request succeeds again, all that wait to try again do so.
 *
 * @module
 */
import type { Clock } from "../kernel/clock.ts";
import type { Logger } from "../observe/log.ts";
import { RefusalError } from "./kube_messages.ts";

interface Trouble {
  readonly sinceMs: number;
  toldMs: number;
  failures: number;
}

/** Lasting trouble is told again after this time. */
const TELL_AGAIN_MS = 300_000;

/** See the module. */
export class KubeConnection {
  readonly #server: string;
  readonly #log: Logger;
  readonly #clock: Clock;
  /** By path of the resource refused; `""` for trouble of the connection itself. */
  readonly #troubles = new Map<string, Trouble>();
  #recovery = new AbortController();

  constructor(server: string, log: Logger, clock: Clock) {
    this.#server = server;
    this.#log = log;
    this.#clock = clock;
  }

  /** A request for `path` failed and will be tried again after `retryMs`. */
  failed(path: string, error: unknown, retryMs: number): void {
    const refused = error instanceof RefusalError;
    const key = refused ? path : "";
    const values = { server: this.#server, resource: path, retryMs };
    const nowMs = this.#clock.nowMs();
    const known = this.#troubles.get(key);
    if (known === undefined) {
      this.#troubles.set(key, { sinceMs: nowMs, toldMs: nowMs, failures: 1 });
      this.#log.error(
        refused ? "The API server refuses a request" : "Lost the connection to the API server",
        error,
        values,
      );
      return;
    }
    known.failures++;
    if (nowMs - known.toldMs < TELL_AGAIN_MS) {
      this.#log.info("Still no success at the API server", { ...values, err: error }, 2);
      return;
    }
    known.toldMs = nowMs;
    this.#log.error("Still no success at the API server", error, {
      ...values,
      failures: known.failures,
      seconds: seconds(nowMs - known.sinceMs),
    });
  }

  /** A request for `path` was answered as wanted. */
  succeeded(path: string): void {
    for (const key of ["", path]) {
      const trouble = this.#troubles.get(key);
      if (trouble === undefined) continue;
      this.#troubles.delete(key);
      this.#log.info(
        key === "" ? "The connection to the API server is back" : "The API server answers the request again",
        {
          server: this.#server,
          resource: path,
          failures: trouble.failures,
          seconds: seconds(this.#clock.nowMs() - trouble.sinceMs),
        },
      );
      if (key === "") this.#wake();
    }
  }

  /** Waits before the next try: shorter than `ms` if the failure was of the connection and it comes back, never longer. */
  async wait(ms: number, error: unknown, signal: AbortSignal): Promise<void> {
    if (error instanceof RefusalError) return await this.#clock.sleep(ms, signal);
    const either = new AbortController();
    const end = (): void => either.abort();
    const recovery = this.#recovery.signal;
    for (const cause of [signal, recovery]) cause.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    try {
      await this.#clock.sleep(ms, either.signal);
    } finally {
      for (const cause of [signal, recovery]) cause.removeEventListener("abort", end);
    }
  }

  #wake(): void {
    this.#recovery.abort();
    this.#recovery = new AbortController();
  }
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}
