/**
 * Keeps one kind of object in step with the API server: list in pages, watch, list again when the server asks for it.
 * Whatever happens to the connection, what was delivered stays in force until the server says otherwise.
 *
 * @module
 */
import { errorText, type Logger } from "../observe/log.ts";
import type { ApiObject } from "../model/objects.ts";
import { DecodeError } from "./decode_values.ts";
import { describeItem } from "./decode.ts";
import { sameObject } from "./events.ts";
import type { HttpAnswer, KubeClient } from "./kube_http.ts";
import { readLines } from "./kube_lines.ts";
import type { ResourceKind, SourceEvent, SourceSink } from "./source.ts";
import { sleep } from "./token_bucket.ts";

/** One resource of the API and how its objects are read. */
export interface WatchedResource {
  readonly kind: ResourceKind;
  /** Kind of the objects, for messages; items of a list do not carry it. */
  readonly objectKind: string;
  /** e.g. `/api/v1/services`. */
  readonly path: string;
  /** Queries to try in order; the next one is used when the server refuses a selector (400). */
  readonly selectors: readonly string[];
  /** What one API object stands for; several for v1 Endpoints. @throws {DecodeError} */
  readonly decode: (raw: unknown) => readonly ApiObject[];
}

/** Times of a {@linkcode Reflector}, in milliseconds. */
export interface ReflectorTimes {
  readonly backoffInitialMs: number;
  readonly backoffMaxMs: number;
  /** Without a byte for this long the watch counts as dead. The server sends a bookmark about every minute. */
  readonly stallMs: number;
  /** The server ends a watch after this time, up to twice as long. */
  readonly watchMs: number;
  /** Limit for a list's page to begin and for each further piece of it to arrive. */
  readonly listMs: number;
}

/** The times of a node in service. */
export const REFLECTOR_TIMES: ReflectorTimes = {
  backoffInitialMs: 800,
  backoffMaxMs: 30_000,
  stallMs: 90_000,
  watchMs: 300_000,
  listMs: 60_000,
};

/** What a {@linkcode Reflector} needs. */
export interface ReflectorOptions {
  readonly resource: WatchedResource;
  readonly client: KubeClient;
  readonly sink: SourceSink;
  readonly log: Logger;
  readonly times: ReflectorTimes;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
}

/** The server does not have this resource at all. */
export class ResourceMissingError extends Error {
  constructor(path: string) {
    super(`The API server has no ${path}`);
    this.name = "ResourceMissingError";
  }
}

/** The resource version asked for is gone: list again. */
class ExpiredError extends Error {}

interface ListPage {
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
  readonly items?: readonly unknown[] | null;
}

interface WatchEvent {
  readonly type?: string;
  readonly object?: {
    readonly metadata?: { readonly resourceVersion?: string };
    readonly code?: number;
    readonly message?: string;
  };
}

const PAGE_SIZE = 500;

/** Lists and watches one resource until stopped. */
export class Reflector {
  readonly #options: ReflectorOptions;
  /** API identity → what it stands for now. */
  readonly #objects = new Map<string, readonly ApiObject[]>();
  #selector = 0;
  #synced = false;
  #failures = 0;

  constructor(options: ReflectorOptions) {
    this.#options = options;
  }

  /** Every object delivered and still in force. */
  *objects(): Generator<ApiObject> {
    for (const objects of this.#objects.values()) yield* objects;
  }

  /**
   * Runs until `signal` aborts.
   *
   * @throws {ResourceMissingError} if the very first list is answered with 404
   */
  async run(signal: AbortSignal): Promise<void> {
    let resourceVersion = "";
    while (!signal.aborted) {
      try {
        if (resourceVersion === "") resourceVersion = await this.#list(signal);
        resourceVersion = await this.#watch(resourceVersion, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ResourceMissingError) throw error;
        if (error instanceof ExpiredError) resourceVersion = "";
        else await this.#backOff(error, signal);
      }
    }
  }

  async #backOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { times, random, log, resource } = this.#options;
    this.#failures++;
    const base = Math.min(times.backoffInitialMs * 2 ** (this.#failures - 1), times.backoffMaxMs);
    const waitMs = Math.round(base * (1 + random()));
    log.error("Cannot list or watch", error, {
      resource: resource.path,
      retryInMs: waitMs,
      failures: this.#failures,
    });
    await sleep(waitMs, signal).catch(() => {});
  }

  /** Lists everything, delivers the difference to what was known and yields the version to watch from. */
  async #list(signal: AbortSignal): Promise<string> {
    const listed = new Map<string, readonly ApiObject[]>();
    let token = "";
    let resourceVersion = "";
    do {
      const page = await this.#page(token, signal);
      for (const raw of page.items ?? []) this.#take(raw, listed);
      token = page.metadata?.continue ?? "";
      resourceVersion = page.metadata?.resourceVersion ?? "";
    } while (token !== "");
    this.#deliverList(listed);
    this.#failures = 0;
    return resourceVersion === "" ? "0" : resourceVersion;
  }

  async #page(token: string, signal: AbortSignal): Promise<ListPage> {
    const query = new URLSearchParams({ limit: String(PAGE_SIZE) });
    if (token !== "") query.set("continue", token);
    const answer = await this.#get(query, signal, this.#options.times.listMs, token === "");
    const text = await new Response(answer.body).text();
    return JSON.parse(text) as ListPage;
  }

  /** Decodes one API object into `objects`; a malformed one keeps its last good form there. */
  #take(raw: unknown, objects: Map<string, readonly ApiObject[]>): void {
    const identity = identityOfRaw(raw);
    try {
      objects.set(identity, this.#options.resource.decode(raw));
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      this.#reject(raw, error);
      const known = this.#objects.get(identity);
      if (known !== undefined) objects.set(identity, known);
    }
  }

  #reject(raw: unknown, error: DecodeError): void {
    const { sink, resource, client } = this.#options;
    const object = describeItem({ raw, kind: resource.objectKind });
    sink.rejected({ where: client.server + resource.path, object, message: error.message });
  }

  #deliverList(listed: ReadonlyMap<string, readonly ApiObject[]>): void {
    const events: SourceEvent[] = [];
    for (const [identity, objects] of listed) events.push(...this.#replace(identity, objects));
    for (const identity of [...this.#objects.keys()]) {
      if (!listed.has(identity)) events.push(...this.#replace(identity, []));
    }
    if (!this.#synced) events.push({ type: "synced", kind: this.#options.resource.kind });
    this.#synced = true;
    if (events.length > 0) this.#options.sink.events(events);
  }

  /** Makes `objects` what the API object stands for; yields what that changes. */
  *#replace(identity: string, objects: readonly ApiObject[]): Generator<SourceEvent> {
    const before = this.#objects.get(identity) ?? [];
    if (objects.length === 0) this.#objects.delete(identity);
    else this.#objects.set(identity, objects);
    const left = new Map(before.map((object) => [object.name, object]));
    for (const object of objects) {
      const old = left.get(object.name);
      left.delete(object.name);
      if (old === undefined) yield { type: "add", object };
      else if (old !== object && !sameObject(old, object)) yield { type: "update", old, object };
    }
    for (const old of left.values()) yield { type: "delete", old };
  }

  /** Watches until the server ends the stream; yields the version to go on from. */
  async #watch(from: string, signal: AbortSignal): Promise<string> {
    const { times, random } = this.#options;
    const query = new URLSearchParams({
      watch: "1",
      allowWatchBookmarks: "true",
      resourceVersion: from,
      timeoutSeconds: String(Math.ceil(times.watchMs / 1000 * (1 + random()))),
    });
    const answer = await this.#get(query, signal, times.stallMs);
    let resourceVersion = from;
    for await (const lines of readLines(answer.body)) {
      const events: SourceEvent[] = [];
      for (const line of lines) {
        const event = JSON.parse(line) as WatchEvent;
        const version = event.object?.metadata?.resourceVersion;
        if (event.type === "ERROR") {
          if (events.length > 0) this.#options.sink.events(events);
          throw watchError(event);
        }
        if (event.type !== "BOOKMARK") events.push(...this.#takeEvent(event));
        if (version !== undefined) resourceVersion = version;
        this.#failures = 0;
      }
      if (events.length > 0) this.#options.sink.events(events);
    }
    return resourceVersion;
  }

  #takeEvent(event: WatchEvent): readonly SourceEvent[] {
    const identity = identityOfRaw(event.object);
    if (event.type === "DELETED") return [...this.#replace(identity, [])];
    const taken = new Map<string, readonly ApiObject[]>();
    this.#take(event.object, taken);
    return [...this.#replace(identity, taken.get(identity) ?? [])];
  }

  /** A GET whose body ends with an error when nothing arrives for `idleMs`. */
  async #get(query: URLSearchParams, signal: AbortSignal, idleMs: number, paced = true): Promise<HttpAnswer> {
    const { client, resource } = this.#options;
    const idle = new AbortController();
    const limit = AbortSignal.any([signal, idle.signal]);
    const expire = () =>
      idle.abort(new Error(`Nothing arrived from ${client.server} for ${idleMs / 1000} s`));
    let timer = setTimeout(expire, idleMs);
    const restart = () => {
      clearTimeout(timer);
      timer = setTimeout(expire, idleMs);
    };
    try {
      const selector = resource.selectors[this.#selector] ?? "";
      const answer = await client.get(`${resource.path}?${selector}${selector && "&"}${query}`, limit, {
        paced,
      });
      restart();
      if (answer.status === 200) {
        return {
          ...answer,
          body: guarded(answer.body, restart, () => clearTimeout(timer)),
        };
      }
      throw await this.#refusal(answer, signal);
    } catch (error) {
      clearTimeout(timer);
      throw idle.signal.aborted && !signal.aborted ? idle.signal.reason : error;
    }
  }

  async #refusal(answer: HttpAnswer, signal: AbortSignal): Promise<Error> {
    const { resource, log } = this.#options;
    const text = (await new Response(answer.body).text()).slice(0, 500);
    if (answer.status === 410) return new ExpiredError(text);
    if (answer.status === 404 && !this.#synced) return new ResourceMissingError(resource.path);
    if (answer.status === 400 && this.#selector + 1 < resource.selectors.length) {
      this.#selector++;
      log.info("Server refuses the selector, using an older one", { resource: resource.path, answer: text });
      return new ExpiredError(text);
    }
    if (answer.retryAfterSeconds !== null) await sleep(Math.min(answer.retryAfterSeconds, 30) * 1000, signal);
    return new Error(`GET ${resource.path}: status ${answer.status}: ${statusMessage(text)}`);
  }
}

/** Passes a body on, telling of each piece and of its end. */
function guarded(
  body: ReadableStream<Uint8Array>,
  onPiece: () => void,
  onEnd: () => void,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          onEnd();
          controller.close();
          return;
        }
        onPiece();
        controller.enqueue(value);
      } catch (error) {
        onEnd();
        controller.error(error);
      }
    },
    async cancel(reason) {
      onEnd();
      await reader.cancel(reason);
    },
  });
}

function identityOfRaw(raw: unknown): string {
  const metadata = (raw as { metadata?: { namespace?: unknown; name?: unknown } } | null)?.metadata;
  return `${metadata?.namespace ?? ""}/${metadata?.name ?? ""}`;
}

function watchError({ object }: WatchEvent): Error {
  // 410 Gone, also told as 500 "too old resource version" by old servers: the state must be listed again.
  if (object?.code === 410 || /too old resource version/.test(object?.message ?? "")) {
    return new ExpiredError(object?.message);
  }
  return new Error(`Watch ended: ${object?.message ?? errorText(object)}`);
}

function statusMessage(text: string): string {
  try {
    const { message } = JSON.parse(text) as { message?: unknown };
    return typeof message === "string" ? message : text;
  } catch {
    return text;
  }
}
