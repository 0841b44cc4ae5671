/**
 * Requests to the API server for one resource: lists in pages, watches, and lists as the beginning of a watch.
 *
 * @module
 */
import { AnswerError, type HttpAnswer, IdleLimit, type IdleTimes, readRefusal } from "./response.ts";
import {
  ExpiredError,
  type ListPage,
  readEvents,
  readPage,
  readStatus,
  refusal,
  statusOf,
  type WatchBatch,
} from "./serializers.ts";
import type { KubeConnection } from "./connection_state.ts";
import type { ReflectorOptions, ReflectorTimes } from "./reflector.ts";

/** Dependencies of a {@linkcode ListWatch}; `connection` holds what is known of the server. */
export type ListWatchOptions =
  & Pick<ReflectorOptions, "resource" | "client" | "clock" | "random">
  & {
    readonly times: Pick<ReflectorTimes, "watchMs" | "answerMs" | "pageMs" | "streamMs" | "silenceMs">;
    readonly connection: Pick<KubeConnection, "streamsLists">;
  };

/** A list or watch that is asked for. */
export interface Asked {
  /**
   * Of a list: the oldest `resourceVersion` that will do; `"0"` for any from the server's cache, `""` for the newest, which
   * makes the server read its storage. Of a watch: the version that is known.
   */
  readonly version: string;
  /** False for requests that must not wait for the rate limit. */
  readonly paced: boolean;
}

/** A watch, or the list that it begins with, was silent for too long. */
export class SilentError extends AnswerError {
  constructor(cause: Error) {
    super(cause.message, { cause });
    this.name = "SilentError";
  }
}

/** A watch that the server had accepted broke off. */
export class CutOffError extends Error {
  constructor(cause: unknown) {
    super("The watch was cut off", { cause });
    this.name = "CutOffError";
  }
}

/** A watch that begins with a list. */
export interface StreamedList {
  readonly events: AsyncGenerator<WatchBatch>;
  /** To be called at the end of the list: from then on it is an ordinary watch. */
  readonly listed: () => void;
}

const PAGE_SIZE = 500;
/** Most pages of a list: more would be 5,000,000 objects, from a server that goes on for ever. */
const MAX_PAGES = 10_000;

/** Lists and watches one resource. */
export class ListWatch {
  readonly #options: ListWatchOptions;
  #selector = 0;
  #pageSize = PAGE_SIZE;

  constructor(options: ListWatchOptions) {
    this.#options = options;
  }

  /** Selects as for an older server from now on; false if there is no other way to select. */
  useOlderSelector(): boolean {
    const isOther = this.#selector + 1 < this.#options.resource.selectors.length;
    if (isOther) this.#selector++;
    return isOther;
  }

  /**
   * Reads a whole list; `take` is given its objects as they come.
   *
   * @returns the list's version
   * @throws {AnswerError} if the server refuses it, or it is no list
   */
  async list(asked: Asked, take: (raws: readonly unknown[]) => void, signal: AbortSignal): Promise<string> {
    const { resource } = this.#options;
    let token = "";
    for (let pages = 0; pages < MAX_PAGES; pages++) {
      const page = await this.#page(asked, token, take, signal);
      if (page.continueToken === "") {
        this.#pageSize = PAGE_SIZE;
        return page.resourceVersion;
      }
      if (page.continueToken === token) break;
      token = page.continueToken;
    }
    throw new AnswerError(`GET ${resource.path}: the list does not end`);
  }

  async #page(
    { version, paced }: Asked,
    token: string,
    take: (raws: readonly unknown[]) => void,
    signal: AbortSignal,
  ): Promise<ListPage> {
    const { client, times, clock, resource } = this.#options;
    // Servers answer requests without a limit from their cache; pages of a version only from their storage.
    const isWhole = version !== "" && version !== "0" && token === "";
    const query = {
      ...(isWhole ? {} : { limit: String(this.#pageSize) }),
      ...(token === "" ? version === "" ? {} : { resourceVersion: version } : { continue: token }),
    };
    const limits = { idleMs: times.answerMs, wholeMs: times.pageMs };
    using idle = new IdleLimit(limits, client.server, signal, clock);
    try {
      // Further pages of a list do not wait for the rate limit.
      const answer = await this.#get(query, idle, paced && token === "");
      return await readPage(answer, resource, idle, take);
    } catch (error) {
      // A list that takes longer than the server keeps its versions never comes to an end in pages: ask for all at once.
      if (error instanceof ExpiredError && token !== "") this.#pageSize = 0;
      throw idle.error ?? error;
    }
  }

  /**
   * Opens a watch of what comes after a version. Its events end with a {@linkcode SilentError} after a time without a byte: a server may
   * have nothing to say, and a connection may die without a word.
   *
   * @throws {AnswerError} if the server refuses it
   */
  async watch({ version, paced }: Asked, signal: AbortSignal): Promise<AsyncGenerator<WatchBatch>> {
    const { events, idle } = await this.#openWatch({ resourceVersion: version }, paced, signal);
    idle.changeTo(this.#silence());
    return untilSilent(events, idle);
  }

  /**
   * Opens a watch that begins with all objects there are, and a bookmark after the last of them.
   *
   * Source: client-go's reflector with WatchListClient.
   *
   * @throws {AnswerError} if the server refuses it
   */
  async watchList({ version, paced }: Asked, signal: AbortSignal): Promise<StreamedList> {
    const { times, connection } = this.#options;
    const { events, idle } = await this.#openWatch(
      { resourceVersion: version, resourceVersionMatch: "NotOlderThan", sendInitialEvents: "true" },
      paced,
      signal,
    );
    idle.changeTo({
      // The list of another kind may set `streamsLists` meanwhile.
      get idleMs(): number {
        return connection.streamsLists ? times.answerMs : times.streamMs;
      },
      wholeMs: times.pageMs,
    });
    return { events: untilSilent(events, idle), listed: () => idle.changeTo(this.#silence()) };
  }

  #silence(): IdleTimes {
    const { times, resource, random } = this.#options;
    return { idleMs: Math.round(times.silenceMs * (resource.patience ?? 1) * (1 - random() / 4)) };
  }

  /** The events of a watch that the server has accepted; `idle`, which has limited the time until then, ends them. */
  async #openWatch(
    version: Readonly<Record<string, string>>,
    paced: boolean,
    signal: AbortSignal,
  ): Promise<{ readonly events: AsyncGenerator<WatchBatch>; readonly idle: IdleLimit }> {
    const { times, random, clock, client, resource } = this.#options;
    const idle = new IdleLimit({ idleMs: times.answerMs }, client.server, signal, clock);
    const query = {
      watch: "1",
      allowWatchBookmarks: "true",
      timeoutSeconds: String(Math.ceil(times.watchMs / 1000 * (1 + random()))),
      ...version,
    };
    try {
      const answer = await this.#get(query, idle, paced);
      return { events: readEvents(answer, resource, idle), idle };
    } catch (error) {
      idle[Symbol.dispose]();
      throw idle.error ?? error;
    }
  }

  /** A good answer to a GET; `idle` limits the time until it begins. @throws {AnswerError} for any other answer */
  async #get(
    query: Readonly<Record<string, string>>,
    idle: IdleLimit,
    paced: boolean,
  ): Promise<HttpAnswer> {
    const { client, resource } = this.#options;
    const { path } = resource;
    const search = new URLSearchParams({ ...resource.selectors[this.#selector], ...query });
    const answer = await client.get(`${path}?${search}`, idle.signal, { paced });
    if (answer.status === 200) return answer;
    // Sizes of answers are those of lists, as client-go counts them.
    const bytes = await readRefusal("watch" in query ? { body: answer.body } : answer, idle);
    const status = statusOf(readStatus(answer, bytes));
    const retryAfterSeconds = answer.retryAfterSeconds ?? status.retryAfterSeconds;
    const message = status.message || new TextDecoder().decode(bytes);
    throw refusal(path, answer.status, message, { ...status, retryAfterSeconds });
  }
}

async function* untilSilent(
  events: AsyncGenerator<WatchBatch>,
  idle: IdleLimit,
): AsyncGenerator<WatchBatch> {
  try {
    yield* events;
  } catch (error) {
    if (idle.error !== undefined) throw new SilentError(idle.error);
    throw error instanceof AnswerError ? error : new CutOffError(error);
  } finally {
    idle[Symbol.dispose]();
  }
}
