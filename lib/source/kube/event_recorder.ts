/**
 * Posts Events to the API server, in the background.
 *
 * @module
 */
import { abortable, type Clock } from "../../kernel/clock.ts";
import {
  type EventRecorder,
  type EventSubject,
  eventValues,
  type ProxyEvent,
  subjectText,
} from "../../observe/events.ts";
import type { Logger } from "../../observe/log.ts";
import { IdleLimit, readText } from "./response.ts";
import { type KubeClient, TokenBucket, type WriteRequest } from "./kube_client.ts";
import { statusMessage } from "./serializers.ts";
import { escaped } from "../../text/quote.ts";
import type { EventJson } from "../decode/api_json.ts";

/** The part of an API client that Events need. */
export type EventClient = Pick<KubeClient, "server" | "send">;

/** Dependencies of {@linkcode KubeEvents}. */
export interface KubeEventsOptions {
  readonly client: EventClient;
  /** The host's own name, not an override. */
  readonly hostname: string;
  readonly log: Logger;
  readonly clock: Clock;
  /** Milliseconds since the epoch, with fractions. */
  readonly nowMs: () => number;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
}

/** An Event that was recorded, and how often since. */
interface Series {
  readonly event: ProxyEvent;
  /** Body with which it was or will be created. */
  body: EventBody;
  count: number;
  lastMs: number;
  /** When it was last written; undefined: it is not on the server yet. */
  writtenMs: number | undefined;
}

/** The same Event again within this time joins the series (client-go's time). */
const SERIES_MS = 360_000;
/** A series is written again at most this often. */
const REWRITE_MS = 1_800_000;
const MAX_TRIES = 12;
const RETRY_MS = 10_000;
/** How long a server that refuses Events is left alone. */
const REFUSED_MS = 600_000;
const ANSWER_MS = 10_000;
/** Longest delay of the shutdown by Events that are not written yet: they may give its reason. */
const LAST_WORDS_MS = 1_000;
const MAX_QUEUED = 100;
const MAX_SERIES = 500;
/** Events are for rare things: a few at once, then one every 5 s. */
const BURST = 25;
const PER_SECOND = 0.2;

/**
 * Records without waiting; `run` writes. Trouble never reaches the caller: a server without the API, or that refuses
 * Events, is logged once and left alone for a while.
 *
 * Source: client-go's event broadcaster; differs: Events that differ in their note only are Events of their own.
 */
export class KubeEvents implements EventRecorder {
  readonly #options: KubeEventsOptions;
  readonly #bucket: TokenBucket;
  readonly #series = new Map<string, Series>();
  /** Series to write, the oldest first. */
  readonly #queue = new Set<Series>();
  /** Series taken from the queue and not written yet. */
  #writing: Series | undefined;
  #recorded: PromiseWithResolvers<void> = Promise.withResolvers();
  #refusedUntilMs = -Infinity;
  /** Time of the last Event that began a series. */
  #newestMs = -Infinity;
  #loggedProblem = "";

  constructor(options: KubeEventsOptions) {
    this.#options = options;
    this.#bucket = new TokenBucket(PER_SECOND, BURST, options.clock);
  }

  record(event: ProxyEvent): void {
    const { log, hostname, nowMs } = this.#options;
    log.info("Event", eventValues(event), 2);
    const now = nowMs();
    this.#forgetOld(now);
    const key = [event.type, event.reason, event.action, subjectText(event.regarding), event.note].join("\n");
    const known = this.#series.get(key);
    if (known === undefined) {
      // The time is in the Event's name, and two of one object may come in the same moment.
      this.#newestMs = Math.max(now, this.#newestMs + 0.001);
      const body = eventBody(event, hostname, this.#newestMs);
      const series = { event, body, count: 1, lastMs: now, writtenMs: undefined };
      this.#series.set(key, series);
      this.#enqueue(series);
      return;
    }
    known.count++;
    known.lastMs = now;
    const isFirstRepeat = known.count === 2;
    if (isFirstRepeat || known.writtenMs === undefined || now - known.writtenMs >= REWRITE_MS) {
      this.#enqueue(known);
    }
  }

  /**
   * Writes what is recorded until aborted, also what was recorded before. It tries what is left then once more, for a second at
   * most. Never rejects.
   */
  async run(signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        await abortable(this.#recorded.promise, signal);
        this.#recorded = Promise.withResolvers();
        while (this.#queue.size > 0) {
          await this.#bucket.take(signal);
          [this.#writing] = this.#queue;
          if (this.#writing === undefined) continue;
          // An Event of the series that comes while it is written is written after it.
          this.#queue.delete(this.#writing);
          await this.#write(this.#writing, signal);
          this.#writing = undefined;
        }
      }
    } catch (error) {
      if (!signal.aborted) this.#options.log.error("Cannot write Events any more", error);
    }
    await this.#lastWords();
  }

  async #lastWords(): Promise<void> {
    const { clock, client } = this.#options;
    const left = [...this.#writing === undefined ? [] : [this.#writing], ...this.#queue].slice(0, BURST);
    if (left.length === 0 || clock.nowMs() < this.#refusedUntilMs) return;
    using limit = new IdleLimit(
      { idleMs: LAST_WORDS_MS },
      client.server,
      new AbortController().signal,
      clock,
    );
    for (const series of left) if (!limit.signal.aborted) await this.#tryToWrite(series, limit.signal);
  }

  #forgetOld(nowMs: number): void {
    for (const [key, series] of this.#series) {
      const isOld = nowMs - series.lastMs >= SERIES_MS;
      if (isOld || this.#series.size > MAX_SERIES) this.#series.delete(key);
    }
  }

  #enqueue(series: Series): void {
    this.#queue.add(series);
    const [oldest] = this.#queue;
    if (this.#queue.size > MAX_QUEUED && oldest !== undefined) this.#queue.delete(oldest);
    this.#recorded.resolve();
  }

  async #write(series: Series, signal: AbortSignal): Promise<void> {
    const { clock, log, random } = this.#options;
    for (let tries = 1; clock.nowMs() >= this.#refusedUntilMs; tries++) {
      const problem = await this.#tryToWrite(series, signal);
      if (problem === null) return;
      signal.throwIfAborted();
      if (tries === MAX_TRIES) {
        log.info("Event could not be written", { ...eventValues(series.event), problem }, 1);
        return;
      }
      await clock.sleep(RETRY_MS * (1 + 0.25 * random()), signal);
      signal.throwIfAborted();
    }
  }

  /** Resolves to null if there is nothing more to do, else to the error of this attempt. */
  async #tryToWrite(series: Series, signal: AbortSignal): Promise<string | null> {
    const { client, nowMs } = this.#options;
    using limit = new IdleLimit({ idleMs: ANSWER_MS }, client.server, signal, this.#options.clock);
    try {
      const isNew = series.writtenMs === undefined;
      const request = isNew ? creation(series) : repetition(series);
      const answer = await client.send(request, limit.signal);
      const text = await readText(answer, limit);
      // 409: an earlier try got through, only its answer did not.
      if (answer.status < 300 || answer.status === 409) {
        this.#accepted();
        series.writtenMs = nowMs();
        return null;
      }
      if (answer.status === 404 && !isNew) {
        // The server keeps Events for an hour: this one begins anew.
        series.writtenMs = undefined;
        series.body = eventBody(series.event, this.#options.hostname, nowMs());
        return await this.#tryToWrite(series, signal);
      }
      const problem = `${request.method} ${request.path}: status ${answer.status}: ${statusMessage(text)}`;
      if (isTransient(answer.status)) return problem;
      this.#refused(problem, answer.status);
      return null;
    } catch (error) {
      return String(limit.error ?? error);
    }
  }

  #accepted(): void {
    if (this.#loggedProblem === "") return;
    this.#loggedProblem = "";
    this.#options.log.info("The API server takes Events again", { server: this.#options.client.server });
  }

  #refused(message: string, status: number): void {
    const { log, client, clock } = this.#options;
    // Anything else is about this one Event, not about all of them.
    const isGeneral = status === 401 || status === 403 || status === 404 || status === 405;
    if (isGeneral) this.#refusedUntilMs = clock.nowMs() + REFUSED_MS;
    const problem = isGeneral ? `status ${status}` : message;
    if (problem === this.#loggedProblem) return;
    this.#loggedProblem = problem;
    log.warn("The API server does not take Events, the proxy goes on without", {
      server: client.server,
      problem: message,
    });
  }
}

function creation(series: Series): WriteRequest {
  const { body, count, lastMs } = series;
  return {
    method: "POST",
    path: pathOf(body),
    contentType: "application/json",
    body: JSON.stringify({ ...body, ...(count > 1 ? repetitionOf(count, lastMs) : {}) }),
  };
}

function repetition(series: Series): WriteRequest {
  return {
    method: "PATCH",
    path: `${pathOf(series.body)}/${series.body.metadata.name}`,
    contentType: "application/merge-patch+json",
    body: JSON.stringify(repetitionOf(series.count, series.lastMs)),
  };
}

function pathOf({ metadata }: EventBody): string {
  return `/apis/events.k8s.io/v1/namespaces/${metadata.namespace}/events`;
}

/** True for answers that another try may change. */
function isTransient(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}

/** The reporter: kube-proxy's name, so that filters of Events by it go on working. */
const CONTROLLER = "kube-proxy";
/** Limits of the API server. */
const MAX_NOTE_BYTES = 1024;
const MAX_INSTANCE = 128;
const MAX_NAME = 253;

/** An Event of events.k8s.io/v1, with the metadata that each of kproxy's has. */
export type EventBody = EventJson & {
  readonly metadata: { readonly name: string; readonly namespace: string };
};

/** The `series` of an Event: how often it was repeated. */
export type EventRepetition = Required<Pick<EventJson, "series">>;

/**
 * The object to create. Events of Nodes live in namespace `default`.
 *
 * @param hostname the host's own name, not an override
 * @param nowMs milliseconds since the epoch, with fractions; also makes the name unique
 */
export function eventBody(event: ProxyEvent, hostname: string, nowMs: number): EventBody {
  const { type, reason, action, note, regarding } = event;
  const nanoseconds = BigInt(Math.round(nowMs * 1000)) * 1000n;
  const unique = `.${nanoseconds.toString(16)}`;
  return {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: {
      name: regarding.name.slice(0, MAX_NAME - unique.length) + unique,
      namespace: regarding.kind === "Node" ? "default" : regarding.namespace,
    },
    eventTime: microTime(nowMs),
    reportingController: CONTROLLER,
    reportingInstance: `${CONTROLLER}-${hostname}`.slice(0, MAX_INSTANCE),
    action,
    reason,
    regarding: reference(regarding),
    ...(note === ""
      ? {}
      : { note: truncateBytes(escaped(note), MAX_NOTE_BYTES) } satisfies Partial<EventBody>),
    type,
  };
}

function reference(subject: EventSubject): NonNullable<EventBody["regarding"]> {
  const { kind, name } = subject;
  if (subject.kind === "Node") return { apiVersion: "v1", kind, name };
  return { apiVersion: "v1", kind, namespace: subject.namespace, name };
}

/** The part of an Event that its repetition changes. @param lastMs milliseconds since the epoch, with fractions */
function repetitionOf(count: number, lastMs: number): EventRepetition {
  return { series: { count, lastObservedTime: microTime(lastMs) } };
}

/** `2025-01-02T03:04:05.678901Z`. */
export function microTime(epochMs: number): string {
  const micros = Math.round(epochMs * 1000);
  const seconds = new Date(Math.floor(micros / 1e6) * 1000).toISOString().slice(
    0,
    "2025-01-02T03:04:05".length,
  );
  return `${seconds}.${String(micros % 1e6).padStart(6, "0")}Z`;
}

/** The longest beginning of a text that has at most so many bytes and no half characters; three dots if something is missing. */
function truncateBytes(text: string, maxBytes: number): string {
  const encoder = new TextEncoder();
  if (encoder.encode(text).length <= maxBytes) return text;
  const dots = "...";
  const { read } = encoder.encodeInto(text, new Uint8Array(maxBytes - dots.length));
  return text.slice(0, read) + dots;
}
