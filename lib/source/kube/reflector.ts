/**
 * Keeps one resource in step with the API server: list, as the beginning of a watch where the server offers that, else in pages;
 * watch; list again when the server asks for it.
 * Whatever happens to the connection, what was delivered stays in force until the server says otherwise.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../observe/log.ts";
import type { KubeConnection } from "./connection_state.ts";
import {
  ExpiredError,
  RefusalError,
  UnreadableListError,
  type WatchBatch,
  type WatchEvent,
} from "./serializers.ts";
import type { KubeClient } from "./kube_client.ts";
import { KubeStore, Listing } from "./store.ts";
import { AnswerError } from "./response.ts";
import { CutOffError, ListWatch, SilentError, type StreamedList } from "./list_watch.ts";
import type { WatchedResource } from "./kube_source.ts";
import type { ResourceEventHandler, SourceEvent } from "../source.ts";

/** The times of a node in service, in milliseconds; the backoff is client-go's. */
export const REFLECTOR_TIMES = {
  /** Wait after the first failure in a row; doubled with each further one, and up to twice as long by chance. */
  backoffInitialMs: 800,
  backoffMaxMs: 30_000,
  /** Wait after an optional resource was refused, up to twice as long by chance: a lasting one must cost the server little. */
  optionalMs: 300_000,
  /**
   * A watch without a byte for this long, or up to a quarter less by chance, is opened once more: its connection may be dead.
   * Many servers send a bookmark about every minute.
   */
  silenceMs: 90_000,
  /** The server ends a watch after this time, up to twice as long by chance. */
  watchMs: 300_000,
  /** Limit for an answer to begin, and for each further piece of a list to arrive. */
  answerMs: 60_000,
  /** Limit for a page of a list to arrive as a whole. */
  pageMs: 600_000,
  /**
   * Limit for each further piece of a list that a watch begins with: a server that knows nothing of such lists is silent. One that has
   * sent such a list before has `answerMs`.
   */
  streamMs: 5_000,
  /** A watch that ends sooner without an event counts as a failure. */
  shortWatchMs: 1_000,
  /** A watch that lived for so long and is then cut off was a good one: it is opened again before anything counts as a failure. */
  steadyMs: 10_000,
  /** A version that expires on a watch younger than this is one more in a row. */
  calmMs: 60_000,
};

/** Times as in {@linkcode REFLECTOR_TIMES}. */
export type ReflectorTimes = Readonly<typeof REFLECTOR_TIMES>;

/** Dependencies of a {@linkcode Reflector}. */
export interface ReflectorOptions {
  readonly resource: WatchedResource;
  readonly client: Pick<KubeClient, "get" | "server">;
  readonly connection: KubeConnection;
  readonly handler: ResourceEventHandler;
  readonly log: Logger;
  readonly times: ReflectorTimes;
  readonly clock: Clock;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
  /**
   * If the server does not have the resource (404) or does not allow to list it (403) at first: `retry` until it does; `empty`
   * counts as synced meanwhile. `optional`: as `empty`, also later on, when what is known stays in force; that is no error and
   * is logged once.
   */
  readonly ifRefused: "retry" | "empty" | "optional";
}

const MAX_RETRY_AFTER_MS = 60_000;
/** Refusals that do not tell whether the server has lists as watches. */
const OTHER_REFUSALS: readonly number[] = [401, 403, 404, 408, 410, 429];
/** Refusals that say nothing of the version: a list would only be more for the server to do. */
const OF_ANY_VERSION: readonly number[] = [401, 429, 503];
/** Message of a server that knows lists as watches, but cannot make them from its storage. */
const NO_STREAMS = /sendInitialEvents|watch stream|RequestWatchProgress/;
/** After so many streamed lists in a row that broke off, one is asked for in pages. */
const MAX_BROKEN_STREAMS = 2;

/** True if the error is about lists being asked for as watches, and so would come again. */
function isAgainstStreams(error: unknown, status: number): boolean {
  if (error instanceof SilentError) return true;
  if (!(error instanceof RefusalError) || OTHER_REFUSALS.includes(status)) return false;
  if (NO_STREAMS.test(error.message)) return true;
  // A 400 may be about the selector, for which an older selector is tried.
  return status > 400 && status < 500;
}

/** Lists and watches one resource until stopped. */
export class Reflector {
  readonly #options: ReflectorOptions;
  readonly #store: KubeStore;
  readonly #listWatch: ListWatch;
  /** The version to watch from; `""` if the state must be listed first. */
  #version = "";
  /** The newest version that was seen; no list that is older counts. */
  #seen = "";
  /** True if the server does not know that version. */
  #isSeenGone = false;
  /** Whether lists are asked for as watches: `not now` is for one list. */
  #streams: "yes" | "not now" | "no" = "yes";
  #brokenStreams = 0;
  /** The list that a watch begins with, until it is whole. */
  #streamed: { readonly listing: Listing; readonly done: StreamedList["listed"] } | null = null;
  #synced = false;
  /** True while the server refuses an optional resource. */
  #isDoneWithout = false;
  readonly #backoff: RetryBackoff;
  #hasLoggedExpired = false;

  constructor(options: ReflectorOptions) {
    const { resource, client, handler, times, random } = options;
    this.#options = options;
    this.#listWatch = new ListWatch(options);
    this.#backoff = new RetryBackoff(times, random);
    const where = client.server + resource.path;
    this.#store = new KubeStore(resource, where, (rejection) => handler.rejected(rejection));
  }

  /** Objects that were delivered and are still in force. */
  get store(): KubeStore {
    return this.#store;
  }

  /** Runs until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (this.#version === "" && this.#streams !== "yes") await this.#list(signal);
        await this.#watch(signal);
      } catch (error) {
        if (signal.aborted) return;
        const next = this.#afterFailure(error);
        if (next === "do without") await this.#doWithout(error, signal);
        if (next === "wait") await this.#backOff(error, signal);
      }
    }
  }

  #afterFailure(error: unknown): "now" | "wait" | "do without" {
    const { resource, log, ifRefused } = this.#options;
    const status = error instanceof RefusalError ? error.status : 0;
    const isListing = this.#version === "";
    if (isListing && this.#streams === "yes") {
      if (this.#leavesStreams(error)) return "now";
    } else if (isListing && this.#streams === "not now") this.#streams = "yes";
    if (error instanceof ExpiredError) {
      const isAsked = isListing && this.#oldestList() === this.#seen && this.#seen !== "";
      if (isAsked || /too large/i.test(error.message)) this.#isSeenGone = true;
      this.#version = "";
      log.info("Listing again", { resource: resource.path, reason: error.message }, 2);
      // Once is the ordinary course of things; a server that keeps saying so must not be hammered.
      return isAsked || this.#backoff.expired() ? "now" : "wait";
    }
    if (isListing && status === 400 && this.#listWatch.useOlderSelector()) {
      log.info("Older selector, as the API server refuses this one", { resource: resource.path, err: error });
      return "now";
    }
    const isClosed = status === 403 || status === 404;
    if (isClosed && error instanceof Error) this.#options.handler.refused?.(resource.kind, error.message);
    if (ifRefused === "optional" && isClosed) return "do without";
    const isWithout = isClosed || error instanceof UnreadableListError;
    if (!this.#synced && ifRefused === "empty" && isWithout) this.#deliver([]);
    this.#backoff.failed(this.#version === "" ? "list" : "watch");
    // An event that cannot be read would come again from the same version, and nothing after it would ever come.
    if (error instanceof AnswerError && this.#backoff.needsList && !OF_ANY_VERSION.includes(status)) {
      this.#version = "";
    }
    return "wait";
  }

  async #doWithout(error: unknown, signal: AbortSignal): Promise<void> {
    const { times, random, connection, resource, log } = this.#options;
    // A server that comes with another version may have other versions of objects, too.
    this.#version = "";
    this.#backoff.reset();
    if (!this.#isDoneWithout) {
      log.info("Going on without what the API server does not give", { resource: resource.path, err: error });
    }
    this.#isDoneWithout = true;
    if (!this.#synced) this.#deliver([]);
    const waitMs = Math.round(times.optionalMs * (1 + random()));
    await connection.wait(resource.path, waitMs, error, signal);
  }

  async #backOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { connection, resource, handler } = this.#options;
    const askedMs = error instanceof RefusalError ? error.retryAfterSeconds * 1000 : 0;
    const waitMs = this.#backoff.waitMs(Math.min(askedMs, MAX_RETRY_AFTER_MS));
    if (error instanceof ExpiredError) {
      this.#logExpired(error, waitMs);
    } else {
      const reason = connection.failed(resource.path, error, waitMs);
      handler.failed?.(resource.kind, reason);
    }
    await connection.wait(resource.path, waitMs, error, signal);
  }

  /** Logs an expired version. The connection would log trouble on and off, as each list in between succeeds. */
  #logExpired({ message }: ExpiredError, waitMs: number): void {
    const { log, resource } = this.#options;
    const values = { resource: resource.path, retryMs: waitMs, reason: message };
    if (this.#hasLoggedExpired) log.info("Versions of the API server still expire at once", values, 2);
    else {log.warn(
        "Versions of the API server expire at once, listing again with longer and longer waits",
        values,
      );}
    this.#hasLoggedExpired = true;
  }

  /** True if a list that was asked for as a watch should be asked for in pages, at once. */
  #leavesStreams(error: unknown): boolean {
    const { resource, log } = this.#options;
    const status = error instanceof RefusalError ? error.status : 0;
    if (isAgainstStreams(error, status)) {
      this.#streams = "no";
      log.info(
        "The API server streams no lists, asking for pages",
        { resource: resource.path, err: error },
        2,
      );
      return true;
    }
    if (error instanceof CutOffError || error instanceof AnswerError) this.#brokenStreams++;
    // A user who may not watch may still list.
    const isForbidden = status === 403;
    if (isForbidden || this.#brokenStreams >= MAX_BROKEN_STREAMS) this.#streams = "not now";
    return isForbidden;
  }

  /** Version of the oldest list that is acceptable; `""`: the newest. */
  #oldestList(): string {
    if (this.#isSeenGone) return "";
    return this.#seen === "" ? "0" : this.#seen;
  }

  /** Lists everything and delivers the difference to what was known. */
  async #list(signal: AbortSignal): Promise<void> {
    const listing = new Listing(this.#store);
    // No waiting before traffic can flow.
    const asked = { version: this.#oldestList(), paced: this.#synced };
    const version = await this.#listWatch.list(asked, (raws) => listing.take(raws), signal);
    this.#take(listing, version);
  }

  /** Replaces all objects by those of a complete list. */
  #take(listing: Listing, version: string): void {
    const { connection, resource, log, handler } = this.#options;
    const events = listing.finish(resource.path);
    this.#version = this.#seen = version;
    this.#isSeenGone = false;
    this.#brokenStreams = 0;
    if (this.#streams === "not now") this.#streams = "yes";
    this.#backoff.listed();
    connection.succeeded(resource.path);
    if (this.#isDoneWithout) {
      this.#isDoneWithout = false;
      log.info("The API server gives what it did not give before", { resource: resource.path });
    }
    handler.heard?.(resource.kind);
    this.#deliver(events);
  }

  #deliver(events: SourceEvent[]): void {
    const { resource, handler } = this.#options;
    if (!this.#synced) events.push({ type: "synced", kind: resource.kind });
    this.#synced = true;
    if (events.length > 0) handler.events(events);
  }

  /** Watches until the server ends the stream, or the connection is cut; begins with a list, if there is no version yet. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { times, random, clock, resource, handler } = this.#options;
    const startMs = clock.nowMs();
    const livedMs = (): number => clock.nowMs() - startMs;
    let anything = false;
    try {
      const batches = this.#version === "" ? this.#openStream(signal) : this.#openWatch(signal);
      for await (const batch of await batches) {
        handler.heard?.(resource.kind);
        this.#takeEvents(batch);
        anything = true;
        this.#backoff.watched();
      }
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof SilentError && this.#version !== "") return this.#backoff.watched();
      if (this.#version === "" || !(error instanceof CutOffError) || livedMs() < times.steadyMs) throw error;
      await this.#cutOff(error, signal);
      return;
    } finally {
      this.#streamed = null;
      if (livedMs() >= times.calmMs) {
        this.#backoff.calm();
        this.#hasLoggedExpired = false;
      }
    }
    if (this.#version === "") throw new AnswerError(`Watch of ${resource.path} ended before its list did`);
    if (!anything && livedMs() < times.shortWatchMs) {
      throw new AnswerError(`Watch of ${resource.path} ended at once`);
    }
    this.#backoff.watched();
    // A server that shuts down ends the watches of all its clients at one moment.
    if (livedMs() < times.watchMs) await clock.sleep(times.backoffInitialMs * random(), signal);
  }

  /** Waits after a cut-off watch. Load balancers cut silent ones: ordinary as long as it can be opened again. */
  async #cutOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock, resource, log } = this.#options;
    this.#backoff.watched();
    const waitMs = this.#backoff.waitMs();
    log.info("A watch was cut off, opening another one", { resource: resource.path, waitMs, err: error }, 2);
    await clock.sleep(waitMs, signal);
  }

  /** Opens a watch from the newest known version on. */
  async #openWatch(signal: AbortSignal): Promise<AsyncGenerator<WatchBatch>> {
    const { connection, resource, handler } = this.#options;
    const events = await this.#listWatch.watch({ version: this.#version, paced: true }, signal);
    connection.succeeded(resource.path);
    handler.heard?.(resource.kind);
    return events;
  }

  /** Opens a watch that begins with a list. */
  async #openStream(signal: AbortSignal): Promise<AsyncGenerator<WatchBatch>> {
    // A first stream, without a version, costs the server no more than a later one, unlike a list, and does not wait.
    const asked = { version: this.#isSeenGone ? "" : this.#seen, paced: this.#synced };
    const { events, listed } = await this.#listWatch.watchList(asked, signal);
    this.#streamed = { listing: new Listing(this.#store), done: listed };
    return events;
  }

  #takeEvents(batch: WatchBatch): void {
    const { handler } = this.#options;
    const events: SourceEvent[] = [];
    try {
      for (const event of batch) {
        if (this.#streamed !== null) {
          this.#takeListed(event);
          continue;
        }
        const { type, object, resourceVersion } = event;
        if (type === "DELETED") this.#store.delete(object, events);
        else if (type !== "BOOKMARK") this.#store.put(object, events);
        if (resourceVersion !== "") this.#version = this.#seen = resourceVersion;
      }
    } finally {
      if (events.length > 0) handler.events(events);
    }
  }

  /** Takes an event of a streamed list, which counts only once the bookmark at its end has come. */
  #takeListed(event: WatchEvent): void {
    if (this.#streamed === null) return;
    const { listing, done } = this.#streamed;
    if (!event.endsList) return listing.takeEvent(event);
    if (event.resourceVersion === "") {
      throw new AnswerError("The bookmark at the end of a list has no version");
    }
    done();
    this.#options.connection.streamsLists = true;
    this.#take(listing, event.resourceVersion);
    this.#streamed = null;
  }
}

/** After so many failed watches since the last list, the state is listed again: the server may refuse the version itself. */
const WATCHES_BEFORE_LIST = 4;

/**
 * Failed lists, failed watches and expired versions are counted apart: a good list says nothing of the watch that follows it, and
 * each list that an expired version costs is whole. The longest row decides.
 */
export class RetryBackoff {
  readonly #times: Pick<ReflectorTimes, "backoffInitialMs" | "backoffMaxMs">;
  readonly #random: () => number;
  #lists = 0;
  #watches = 0;
  #watchesSinceList = 0;
  #expiries = 0;

  /** @param random a number from 0 (inclusive) to 1 (exclusive) */
  constructor(times: Pick<ReflectorTimes, "backoffInitialMs" | "backoffMaxMs">, random: () => number) {
    this.#times = times;
    this.#random = random;
  }

  /** A list came in whole. */
  listed(): void {
    this.#lists = 0;
    this.#watchesSinceList = 0;
  }

  /** A watch brought something, or lived long enough to be a good one. */
  watched(): void {
    this.#watches = this.#watchesSinceList = 0;
  }

  /** A watch lived so long that the next expired version is the ordinary course of things. */
  calm(): void {
    this.#expiries = 0;
  }

  /** Clears all counts. */
  reset(): void {
    this.listed();
    this.watched();
    this.calm();
  }

  failed(what: "list" | "watch"): void {
    if (what === "list") {
      this.#lists++;
    } else {
      this.#watches++;
      this.#watchesSinceList++;
    }
  }

  /**
   * The server answers, so the watches that failed before have had their waits: a server that starts again expires what it gave
   * out before, and some of what it lists first.
   *
   * @returns true if the state may be listed at once: the first time in a row, which every server has now and then
   */
  expired(): boolean {
    this.#watches = 0;
    return ++this.#expiries === 1;
  }

  /** True if the watch should be tried from a new list. */
  get needsList(): boolean {
    return this.#watchesSinceList >= WATCHES_BEFORE_LIST;
  }

  /** The wait after the last failure, in milliseconds; `askedMs` is the least that the server asks for. */
  waitMs(askedMs = 0): number {
    const { backoffInitialMs, backoffMaxMs } = this.#times;
    const failures = Math.max(this.#lists, this.#watches, this.#expiries - 1, 1);
    const baseMs = Math.min(backoffInitialMs * 2 ** (failures - 1), backoffMaxMs);
    return Math.max(askedMs, Math.round(baseMs * (1 + this.#random())));
  }
}
