/**
 * The state of the connection to an API server, shared by everything that lists and watches there: trouble is logged once and
 * then rarely, and when one request succeeds again, all that wait to try again do so.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../observe/log.ts";
import { ExpiredError, RefusalError } from "./serializers.ts";
import { AnswerError } from "./response.ts";
import { CredentialError } from "./credentials.ts";

/** Dependencies of a {@linkcode KubeConnection}. */
export interface KubeConnectionOptions {
  /** The server's URL. */
  readonly server: string;
  readonly log: Logger;
  readonly clock: Clock;
  /** True if the credentials differ from those of the last request; null if they cannot change. */
  readonly haveCredentialsChanged: ((signal: AbortSignal) => Promise<boolean>) | null;
}

interface Trouble {
  readonly sinceMs: number;
  readonly over: string;
  loggedMs: number;
  failures: number;
}

/** Lasting trouble is logged as an error again after this time. */
const LOG_AGAIN_MS = 300_000;
/** How often requests that wait for changed credentials check for them. */
const LOOK_MS = 1_000;

/** Kind of trouble that an error means. */
interface Fault {
  /** {@linkcode CONNECTION} or {@linkcode CREDENTIALS} for all requests, or the path of the only affected one. */
  readonly key: string;
  readonly message: string;
  /** Message when the trouble is over. */
  readonly over: string;
}

/** State of the connection to one API server, shared by all its requests. */
export class KubeConnection {
  /** True once a list came as a watch: then a list without an answer means a busy server. */
  streamsLists = false;
  readonly #options: KubeConnectionOptions;
  /** Present troubles by {@linkcode Fault.key}. */
  readonly #troubles = new Map<string, Trouble>();
  #recovery = new AbortController();
  #hasAnswered = false;

  constructor(options: KubeConnectionOptions) {
    this.#options = options;
  }

  /**
   * A request for `path` failed and will be tried again after `retryMs`.
   *
   * @returns the kind of failure in words, without details that only the log may have
   */
  failed(path: string, error: unknown, retryMs: number): string {
    const { server, log, clock } = this.#options;
    if (error instanceof AnswerError) this.#hasAnswered = true;
    const { key, message, over } = this.#fault(path, error);
    const values = { server, resource: path, retryMs };
    const brief = error instanceof RefusalError ? `${message} (status ${error.status})` : message;
    const nowMs = clock.nowMs();
    const known = this.#troubles.get(key);
    if (known === undefined) {
      this.#troubles.set(key, { sinceMs: nowMs, loggedMs: nowMs, failures: 1, over });
      log.error(message, error, values);
      return brief;
    }
    known.failures++;
    if (nowMs - known.loggedMs < LOG_AGAIN_MS) {
      log.info("Still no success at the API server", { ...values, err: error }, 2);
      return brief;
    }
    known.loggedMs = nowMs;
    log.error("Still no success at the API server", error, {
      ...values,
      failures: known.failures,
      seconds: seconds(nowMs - known.sinceMs),
    });
    return brief;
  }

  /** A request for `path` was answered as wanted. The waits of other requests end only when trouble does: events come all the time. */
  succeeded(path: string): void {
    this.#hasAnswered = true;
    const ended = [CONNECTION, CREDENTIALS, path].filter((key) => this.#end(key, path));
    if (ended.length > 0) this.#wake();
  }

  /** @returns false if there was no such trouble */
  #end(key: string, path: string): boolean {
    const trouble = this.#troubles.get(key);
    if (trouble === undefined) return false;
    this.#troubles.delete(key);
    const { server, log, clock } = this.#options;
    const { failures, over, sinceMs } = trouble;
    log.info(over, { server, resource: path, failures, seconds: seconds(clock.nowMs() - sinceMs) });
    return true;
  }

  #wake(): void {
    this.#recovery.abort();
    this.#recovery = new AbortController();
  }

  /**
   * Waits before the next try of `path`, never longer than `ms`; shorter if the failure may be over, because another request
   * succeeded or, if it was one of credentials, there are others now.
   */
  async wait(path: string, ms: number, error: unknown, signal: AbortSignal): Promise<void> {
    // A certificate or an authority that only one side accepts looks like a lost connection, too.
    const isOfAll = this.#fault(path, error).key !== path;
    const over = new AbortController();
    const recovery = isOfAll || isCommon(error) ? [this.#recovery.signal] : [];
    const ending = AbortSignal.any([signal, over.signal, ...recovery]);
    const { clock, haveCredentialsChanged } = this.#options;
    const waits = [clock.sleep(ms, ending)];
    if (isOfAll && haveCredentialsChanged !== null) {
      waits.push(this.#untilChanged(haveCredentialsChanged, ending));
    }
    try {
      await Promise.race(waits);
    } finally {
      over.abort();
      await Promise.all(waits);
    }
  }

  async #untilChanged(
    haveChanged: (signal: AbortSignal) => Promise<boolean>,
    signal: AbortSignal,
  ): Promise<void> {
    while (!signal.aborted) {
      await this.#options.clock.sleep(LOOK_MS, signal);
      if (!signal.aborted && await haveChanged(signal)) return;
    }
  }

  #fault(path: string, error: unknown): Fault {
    if (error instanceof CredentialError) {
      return {
        key: CREDENTIALS,
        message: "Cannot get the credentials for the API server",
        over: "There are credentials for the API server",
      };
    }
    if (!(error instanceof AnswerError)) return this.#hasAnswered ? LOST : NEVER_THERE;
    if (error instanceof RefusalError && error.status === 401) return REFUSED_CREDENTIALS;
    return {
      key: path,
      message: error instanceof RefusalError
        ? "The API server refuses a request"
        : "The API server's answer is of no use",
      over: "The API server answers the request again",
    };
  }
}

/** True if a success of another request means that this failure may be over, too. */
function isCommon(error: unknown): boolean {
  if (!(error instanceof RefusalError)) return true;
  // A server's Retry-After is obeyed, and expired versions concern one kind of objects only.
  return error.status >= 500 && error.retryAfterSeconds === 0 && !(error instanceof ExpiredError);
}

const CONNECTION = "";
const CREDENTIALS = "credentials";
const LOST: Fault = {
  key: CONNECTION,
  message: "Lost the connection to the API server",
  over: "The connection to the API server is back",
};
const NEVER_THERE: Fault = {
  key: CONNECTION,
  message: "Cannot reach the API server",
  over: "The API server can be reached",
};
const REFUSED_CREDENTIALS: Fault = {
  key: CREDENTIALS,
  message: "The API server does not accept the credentials",
  over: "The API server accepts the credentials",
};

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}
