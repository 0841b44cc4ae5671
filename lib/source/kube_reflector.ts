/**
 * Keeps one resource in step with the API server: list in pages, watch, list again when the server asks for it.
 * Whatever happens to the connection, what was delivered stays in force until the server says otherwise.
 *
 * @module
 */
import type { Clock } from "../kernel/clock.ts";
import type { Logger } from "../observe/log.ts";
import { type HttpAnswer, readLines, readText } from "./kube_answer.ts";
import type { KubeConnection } from "./kube_connection.ts";
import type { KubeClient } from "./kube_http.ts";
import { IdleLimit } from "./kube_idle.ts";
import { ExpiredError, parseListPage, parseWatchEvent, refusal, RefusalError } from "./kube_messages.ts";
import type { WatchedResource } from "./kube_resources.ts";
import { type DecodedObjects, KubeStore } from "./kube_store.ts";
import type { SourceEvent, SourceSink } from "./source.ts";

/** Times of a {@linkcode Reflector}, in milliseconds. */
export interface ReflectorTimes {
  /** Wait after the first failure in a row; doubled with each further one, and up to twice as long by chance. */
  readonly backoffInitialMs: number;
  readonly backoffMaxMs: number;
  /** Wait after a refusal of what is optional, up to twice as long by chance: one that stays must cost the server little. */
  readonly optionalMs: number;
  /** Without a byte for this long a watch counts as dead. The server sends a bookmark about every minute. */
  readonly stallMs: number;
  /** The server ends a watch after this time, up to twice as long by chance. */
  readonly watchMs: number;
  /** Limit for an answer to begin, and for each further piece of a list to arrive. */
  readonly answerMs: number;
  /** A watch that ends sooner without an event counts as a failure. */
  readonly shortWatchMs: number;
}

/** The times of a node in service; the backoff is client-go's. */
export const REFLECTOR_TIMES: ReflectorTimes = {
  backoffInitialMs: 800,
  backoffMaxMs: 30_000,
  optionalMs: 300_000,
  stallMs: 90_000,
  watchMs: 300_000,
  answerMs: 60_000,
  shortWatchMs: 1_000,
};

/** What a {@linkcode Reflector} needs. */
export interface ReflectorOptions {
  readonly resource: WatchedResource;
  readonly client: KubeClient;
  readonly connection: KubeConnection;
  readonly sink: SourceSink;
  readonly log: Logger;
  readonly times: ReflectorTimes;
  readonly clock: Clock;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
  /**
   * If the server does not have the resource (404) or does not let us list it (403) at first: `retry` until it does; `empty`
   * counts as synced meanwhile; `stop` ends the reflector on a 404. `optional`: as `empty`, also later on, when what is known
   * stays in force; that is no error and is said once.
   */
  readonly ifRefused: "retry" | "empty" | "stop" | "optional";
}

const PAGE_SIZE = 500;
const MAX_RETRY_AFTER_MS = 60_000;
const FAILURES_BEFORE_LIST = 4;

/** Lists and watches one resource until stopped. */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #store: KubeStore;
  /** The version to watch from; `""` if the state must be listed first. */
  #version = "";
  #selector = 0;
  #pageSize = PAGE_SIZE;
  #synced = false;
  /** True while the server refuses what is optional. */
  #isDoneWithout = false;
  /** In a row, since the last list or watch event. */
  #failures = 0;
  /** How often in a row a version was gone, since the last watch event. */
  #expiries = 0;

  constructor(options: ReflectorOptions) {
    const { resource, client, sink } = options;
    this.#options = options;
    const where = client.server + resource.path;
    this.#store = new KubeStore(resource, where, (rejection) => sink.rejected(rejection));
  }

  /** What was delivered and is still in force. */
  get store(): KubeStore {
    return this.#store;
  }

  /** Runs until `signal` aborts, or the resource is missing and that is to stop it. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (this.#version === "") await this.#list(signal);
        await this.#watch(signal);
      } catch (error) {
        if (signal.aborted) return;
        const next = error instanceof RefusalError ? this.#afterRefusal(error) : "wait";
        if (next === "stop") return;
        if (next === "do without") await this.#doWithout(error, signal);
        if (next === "wait") await this.#backOff(error, signal);
      }
    }
  }

  #afterRefusal(error: RefusalError): "now" | "wait" | "stop" | "do without" {
    const { resource, log, ifRefused } = this.#options;
    const { status } = error;
    if (error instanceof ExpiredError) {
      this.#version = "";
      this.#expiries++;
      log.info("Listing again", { resource: resource.path, reason: error.message }, 2);
      // Once is the ordinary course of things; a server that keeps saying so must not be hammered.
      return this.#expiries === 1 ? "now" : "wait";
    }
    if (this.#version === "" && status === 400 && this.#selector + 1 < resource.selectors.length) {
      this.#selector++;
      log.info("Older selector, as the API server refuses this one", {
        resource: resource.path,
        err: error.message,
      });
      return "now";
    }
    if (!this.#synced && ifRefused === "stop" && status === 404) return "stop";
    const isClosed = status === 403 || status === 404;
    if (ifRefused === "optional" && isClosed) return "do without";
    if (!this.#synced && ifRefused === "empty" && isClosed) this.#deliver([]);
    // A list is the way out of whatever a server has against the version we know.
    if (this.#failures >= FAILURES_BEFORE_LIST) this.#version = "";
    return "wait";
  }

  async #doWithout(error: unknown, signal: AbortSignal): Promise<void> {
    const { times, random, connection, resource, log } = this.#options;
    // A server that comes with another version may have other versions of objects, too.
    this.#version = "";
    this.#failures = 0;
    if (!this.#isDoneWithout) {
      log.info("Going on without what the API server does not give", { resource: resource.path, err: error });
    }
    this.#isDoneWithout = true;
    if (!this.#synced) this.#deliver([]);
    await connection.wait(Math.round(times.optionalMs * (1 + random())), error, signal);
  }

  async #backOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { times, random, connection, resource } = this.#options;
    const baseMs = Math.min(times.backoffInitialMs * 2 ** this.#failures, times.backoffMaxMs);
    const askedMs = error instanceof RefusalError ? error.retryAfterSeconds * 1000 : 0;
    const waitMs = Math.max(Math.min(askedMs, MAX_RETRY_AFTER_MS), Math.round(baseMs * (1 + random())));
    this.#failures++;
    connection.failed(resource.path, error, waitMs);
    await connection.wait(waitMs, error, signal);
  }

  /** Lists everything and delivers the difference to what was known. */
  async #list(signal: AbortSignal): Promise<void> {
    const { connection, resource } = this.#options;
    const listed: DecodedObjects = new Map();
    let token = "";
    let version: string;
    do {
      const page = parseListPage(await this.#page(token, signal), resource.path);
      for (const raw of page.items) this.#store.decodeInto(listed, raw);
      token = page.continueToken;
      version = page.resourceVersion;
    } while (token !== "");
    this.#version = version;
    this.#pageSize = PAGE_SIZE;
    this.#failures = 0;
    connection.succeeded(resource.path);
    if (this.#isDoneWithout) {
      this.#isDoneWithout = false;
      this.#options.log.info("The API server gives what it did not give before", { resource: resource.path });
    }
    this.#options.sink.heard?.(resource.kind);
    this.#deliver(this.#store.replaceAll(listed));
  }

  #deliver(events: SourceEvent[]): void {
    const { resource, sink } = this.#options;
    if (!this.#synced) events.push({ type: "synced", kind: resource.kind });
    this.#synced = true;
    if (events.length > 0) sink.events(events);
  }

  async #page(token: string, signal: AbortSignal): Promise<string> {
    const query = { limit: String(this.#pageSize), ...(token === "" ? {} : { continue: token }) };
    try {
      return await this.#get(query, signal, {
        idleMs: this.#options.times.answerMs,
        // No waiting before traffic can flow, nor in the middle of a list.
        paced: this.#synced && token === "",
        read: (answer, idle) => readText(answer.body, idle),
      });
    } catch (error) {
      // A list that takes longer than the server keeps its versions never comes to an end in pages: ask for all at once.
      if (error instanceof ExpiredError && token !== "") this.#pageSize = 0;
      throw error;
    }
  }

  /** Watches until the server ends the stream. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { times, random, clock, connection, resource, sink } = this.#options;
    const query = {
      watch: "1",
      allowWatchBookmarks: "true",
      resourceVersion: this.#version,
      timeoutSeconds: String(Math.ceil(times.watchMs / 1000 * (1 + random()))),
    };
    const startMs = clock.nowMs();
    let anything = false;
    await this.#get(query, signal, {
      idleMs: times.stallMs,
      paced: true,
      read: async (answer, idle) => {
        connection.succeeded(resource.path);
        sink.heard?.(resource.kind);
        for await (const lines of readLines(answer.body, idle)) {
          sink.heard?.(resource.kind);
          this.#takeEvents(lines);
          anything = true;
          this.#failures = 0;
          this.#expiries = 0;
        }
      },
    });
    if (!anything && clock.nowMs() - startMs < times.shortWatchMs) {
      throw new Error(`Watch of ${resource.path} ended at once`);
    }
  }

  #takeEvents(lines: readonly string[]): void {
    const { resource, sink } = this.#options;
    const events: SourceEvent[] = [];
    try {
      for (const line of lines) {
        const { type, object, resourceVersion } = parseWatchEvent(line, resource.path);
        if (type === "DELETED") this.#store.delete(object, events);
        else if (type !== "BOOKMARK") this.#store.put(object, events);
        if (resourceVersion !== "") this.#version = resourceVersion;
      }
    } finally {
      if (events.length > 0) sink.events(events);
    }
  }

  /** A GET that fails when nothing arrives for `idleMs`; `read` takes its body. */
  async #get<T>(
    query: Readonly<Record<string, string>>,
    signal: AbortSignal,
    { idleMs, paced, read }: {
      idleMs: number;
      paced: boolean;
      read: (answer: HttpAnswer, idle: IdleLimit) => Promise<T>;
    },
  ): Promise<T> {
    const { client, resource } = this.#options;
    const search = new URLSearchParams({ ...resource.selectors[this.#selector], ...query });
    using idle = new IdleLimit(idleMs, client.server, signal);
    try {
      const answer = await client.get(`${resource.path}?${search}`, idle.signal, { paced });
      if (answer.status === 200) return await read(answer, idle);
      const text = await readText(answer.body, idle);
      throw refusal(resource.path, answer.status, text, answer.retryAfterSeconds ?? 0);
    } catch (error) {
      throw idle.error ?? error;
    }
  }
}
