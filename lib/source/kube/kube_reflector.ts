/**
 * Keeps one resource in step with the API server: list in pages, watch, list again when the server asks for it.
 * Whatever happens to the connection, what was delivered stays in force until the server says otherwise.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../observe/log.ts";
import { type HttpAnswer, readLines, readRefusal, readText } from "./kube_answer.ts";
import type { KubeConnection } from "./kube_connection.ts";
import type { KubeClient } from "./kube_http.ts";
import { IdleLimit } from "./kube_idle.ts";
import {
  AnswerError,
  ExpiredError,
  parseListPage,
  parseWatchEvent,
  refusal,
  RefusalError,
  UnreadableListError,
} from "./kube_messages.ts";
import { RetryPace } from "./kube_pace.ts";
import type { WatchedResource } from "./kube_resources.ts";
import { type DecodedObjects, KubeStore, type RefusedObject } from "./kube_store.ts";
import { CutOffError, watchedLines } from "./kube_watch.ts";
import type { SourceEvent, SourceSink } from "../source.ts";

/** Times of a {@linkcode Reflector}, in milliseconds. */
export interface ReflectorTimes {
  /** Wait after the first failure in a row; doubled with each further one, and up to twice as long by chance. */
  readonly backoffInitialMs: number;
  readonly backoffMaxMs: number;
  /** Wait after a refusal of what is optional, up to twice as long by chance: one that stays must cost the server little. */
  readonly optionalMs: number;
  /**
   * A watch without a byte for this long, or up to a quarter less by chance, is opened once more: its connection may be dead.
   * Many servers send a bookmark about every minute.
   */
  readonly silenceMs: number;
  /** The server ends a watch after this time, up to twice as long by chance. */
  readonly watchMs: number;
  /** Limit for an answer to begin, and for each further piece of a list to arrive. */
  readonly answerMs: number;
  /** Limit for a page of a list to arrive as a whole. */
  readonly pageMs: number;
  /** A watch that ends sooner without an event counts as a failure. */
  readonly shortWatchMs: number;
  /** A watch that lived for so long and is then cut off was a good one: it is opened again before anything counts as a failure. */
  readonly steadyMs: number;
  /** A version that expires on a watch younger than this is one more in a row. */
  readonly calmMs: number;
}

/** The times of a node in service; the backoff is client-go's. */
export const REFLECTOR_TIMES: ReflectorTimes = {
  backoffInitialMs: 800,
  backoffMaxMs: 30_000,
  optionalMs: 300_000,
  silenceMs: 90_000,
  watchMs: 300_000,
  answerMs: 60_000,
  pageMs: 600_000,
  shortWatchMs: 1_000,
  steadyMs: 10_000,
  calmMs: 60_000,
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
/** More would be 5,000,000 objects: a server that goes on for ever. */
const MAX_PAGES = 10_000;

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
  readonly #pace: RetryPace;
  #toldExpired = false;

  constructor(options: ReflectorOptions) {
    const { resource, client, sink, times, random } = options;
    this.#options = options;
    this.#pace = new RetryPace({ initialMs: times.backoffInitialMs, maxMs: times.backoffMaxMs, random });
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
        const next = this.#afterFailure(error);
        if (next === "stop") return;
        if (next === "do without") await this.#doWithout(error, signal);
        if (next === "wait") await this.#backOff(error, signal);
      }
    }
  }

  #afterFailure(error: unknown): "now" | "wait" | "stop" | "do without" {
    const { resource, log, ifRefused } = this.#options;
    const status = error instanceof RefusalError ? error.status : 0;
    if (error instanceof ExpiredError) {
      this.#version = "";
      log.info("Listing again", { resource: resource.path, reason: error.message }, 2);
      // Once is the ordinary course of things; a server that keeps saying so must not be hammered.
      return this.#pace.expired() ? "now" : "wait";
    }
    if (this.#version === "" && status === 400 && this.#selector + 1 < resource.selectors.length) {
      this.#selector++;
      log.info("Older selector, as the API server refuses this one", { resource: resource.path, err: error });
      return "now";
    }
    const isClosed = status === 403 || status === 404;
    if (!this.#synced && ifRefused === "stop" && status === 404) return "stop";
    if (isClosed && error instanceof Error) this.#options.sink.refused?.(resource.kind, error.message);
    if (ifRefused === "optional" && isClosed) return "do without";
    const isWithout = isClosed || error instanceof UnreadableListError;
    if (!this.#synced && ifRefused === "empty" && isWithout) this.#deliver([]);
    this.#pace.failed(this.#version === "" ? "list" : "watch");
    // An event that cannot be read would come again from the same version, and nothing after it would ever come.
    if (error instanceof AnswerError && this.#pace.needsList) this.#version = "";
    return "wait";
  }

  async #doWithout(error: unknown, signal: AbortSignal): Promise<void> {
    const { times, random, connection, resource, log } = this.#options;
    // A server that comes with another version may have other versions of objects, too.
    this.#version = "";
    this.#pace.reset();
    if (!this.#isDoneWithout) {
      log.info("Going on without what the API server does not give", { resource: resource.path, err: error });
    }
    this.#isDoneWithout = true;
    if (!this.#synced) this.#deliver([]);
    const waitMs = Math.round(times.optionalMs * (1 + random()));
    await connection.wait(resource.path, waitMs, error, signal);
  }

  async #backOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { connection, resource, sink } = this.#options;
    const askedMs = error instanceof RefusalError ? error.retryAfterSeconds * 1000 : 0;
    const waitMs = this.#pace.waitMs(Math.min(askedMs, MAX_RETRY_AFTER_MS));
    if (error instanceof ExpiredError) {
      this.#tellExpired(error, waitMs);
    } else {
      const reason = connection.failed(resource.path, error, waitMs);
      sink.failed?.(resource.kind, reason);
    }
    await connection.wait(resource.path, waitMs, error, signal);
  }

  /** Each list in between is good, so to the connection this would be trouble that comes and goes. */
  #tellExpired({ message }: ExpiredError, waitMs: number): void {
    const { log, resource } = this.#options;
    const values = { resource: resource.path, retryMs: waitMs, reason: message };
    if (this.#toldExpired) log.info("Versions of the API server still expire at once", values, 2);
    else {log.warn(
        "Versions of the API server expire at once, listing again with longer and longer waits",
        values,
      );}
    this.#toldExpired = true;
  }

  /** Lists everything and delivers the difference to what was known. */
  async #list(signal: AbortSignal): Promise<void> {
    const { connection, resource } = this.#options;
    const listed: DecodedObjects = new Map();
    const refused: RefusedObject[] = [];
    let items = 0;
    let pages = 0;
    let token = "";
    let version: string;
    do {
      const page = parseListPage(await this.#page(token, signal), resource);
      for (const each of this.#store.decodeInto(listed, page.items)) refused.push(each);
      items += page.items.length;
      if (page.continueToken !== "" && (page.continueToken === token || ++pages > MAX_PAGES)) {
        throw new AnswerError(`GET ${resource.path}: the list does not end`);
      }
      token = page.continueToken;
      version = page.resourceVersion;
    } while (token !== "");
    // What nothing can be read of is no list of these objects: taken for one, it would take everything away.
    if (items > 0 && listed.size === 0) {
      const { object, message } = refused[0]!;
      throw new UnreadableListError(
        `GET ${resource.path}: none of ${items} objects can be read: ${object}: ${message}`,
      );
    }
    this.#version = version;
    this.#pageSize = PAGE_SIZE;
    this.#pace.listed();
    connection.succeeded(resource.path);
    if (this.#isDoneWithout) {
      this.#isDoneWithout = false;
      this.#options.log.info("The API server gives what it did not give before", { resource: resource.path });
    }
    this.#options.sink.heard?.(resource.kind);
    this.#deliver(this.#store.replaceAll(listed, refused));
  }

  #deliver(events: SourceEvent[]): void {
    const { resource, sink } = this.#options;
    if (!this.#synced) events.push({ type: "synced", kind: resource.kind });
    this.#synced = true;
    if (events.length > 0) sink.events(events);
  }

  async #page(token: string, signal: AbortSignal): Promise<string> {
    const { client, times, clock } = this.#options;
    const query = { limit: String(this.#pageSize), ...(token === "" ? {} : { continue: token }) };
    const limits = { idleMs: times.answerMs, wholeMs: times.pageMs };
    using idle = new IdleLimit(limits, client.server, signal, clock);
    try {
      // No waiting before traffic can flow, nor in the middle of a list.
      const answer = await this.#get(query, idle, this.#synced && token === "");
      return await readText(answer, idle);
    } catch (error) {
      // A list that takes longer than the server keeps its versions never comes to an end in pages: ask for all at once.
      if (error instanceof ExpiredError && token !== "") this.#pageSize = 0;
      throw idle.error ?? error;
    }
  }

  /** Watches until the server ends the stream, or what is between us cuts it off. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { times, random, clock, resource, connection, sink } = this.#options;
    const startMs = clock.nowMs();
    const livedMs = (): number => clock.nowMs() - startMs;
    let anything = false;
    try {
      const lines = watchedLines({
        open: (ending) => this.#openWatch(ending),
        silenceMs: () => Math.round(times.silenceMs * (1 - random() / 4)),
        renewalFailed: (error, ending) => this.#renewalFailed(error, ending),
        clock,
      }, signal);
      for await (const batch of lines) {
        connection.spoke(resource.path);
        sink.heard?.(resource.kind);
        this.#takeEvents(batch);
        anything = true;
        this.#pace.watched();
      }
    } catch (error) {
      if (!(error instanceof CutOffError) || livedMs() < times.steadyMs) throw error;
      await this.#cutOff(error, signal);
      return;
    } finally {
      if (livedMs() >= times.calmMs) {
        this.#pace.calm();
        this.#toldExpired = false;
      }
    }
    if (!anything && livedMs() < times.shortWatchMs) {
      throw new AnswerError(`Watch of ${resource.path} ended at once`);
    }
    this.#pace.watched();
  }

  /** Ways to the server, such as load balancers, may cut off what is silent for some time: ordinary as long as it can be opened again. */
  async #cutOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock, resource, log } = this.#options;
    this.#pace.watched();
    const waitMs = this.#pace.waitMs();
    log.info("A watch was cut off, opening another one", { resource: resource.path, waitMs, err: error }, 2);
    await clock.sleep(waitMs, signal);
  }

  async #renewalFailed(error: unknown, signal: AbortSignal): Promise<void> {
    this.#pace.failed("watch");
    if (error instanceof AnswerError && this.#pace.needsList) throw error;
    await this.#backOff(error, signal);
  }

  /** A watch of what comes after the newest version. */
  async #openWatch(signal: AbortSignal): Promise<AsyncGenerator<string[]>> {
    const { times, random, clock, client, connection, resource, sink } = this.#options;
    const query = {
      watch: "1",
      allowWatchBookmarks: "true",
      resourceVersion: this.#version,
      timeoutSeconds: String(Math.ceil(times.watchMs / 1000 * (1 + random()))),
    };
    const idle = new IdleLimit(times.answerMs, client.server, signal, clock);
    try {
      const answer = await this.#get(query, idle, true);
      idle.lift();
      connection.succeeded(resource.path);
      sink.heard?.(resource.kind);
      return readLines(answer.body, idle);
    } catch (error) {
      idle[Symbol.dispose]();
      throw idle.error ?? error;
    }
  }

  #takeEvents(lines: readonly string[]): void {
    const { resource, sink } = this.#options;
    const events: SourceEvent[] = [];
    try {
      for (const line of lines) {
        const { type, object, resourceVersion } = parseWatchEvent(line, resource);
        if (type === "DELETED") this.#store.delete(object, events);
        else if (type !== "BOOKMARK") this.#store.put(object, events);
        if (resourceVersion !== "") this.#version = resourceVersion;
      }
    } finally {
      if (events.length > 0) sink.events(events);
    }
  }

  /** A good answer to a GET; `idle` limits the time until it begins. @throws {AnswerError} for any other answer */
  async #get(query: Readonly<Record<string, string>>, idle: IdleLimit, paced: boolean): Promise<HttpAnswer> {
    const { client, resource } = this.#options;
    const { path } = resource;
    const search = new URLSearchParams({ ...resource.selectors[this.#selector], ...query });
    const answer = await client.get(`${path}?${search}`, idle.signal, { paced });
    if (answer.status !== 200) {
      // Sizes of answers are those of lists, as client-go counts them.
      const text = await readRefusal("watch" in query ? { body: answer.body } : answer, idle);
      throw refusal(path, answer.status, text, answer.retryAfterSeconds ?? 0);
    }
    if (/^(application\/json\b|$)/i.test(answer.contentType)) return answer;
    const type = answer.contentType.split(";", 1)[0] ?? "";
    throw new AnswerError(`GET ${path}: the answer is ${type} instead of JSON: it is not from an API server`);
  }
}
