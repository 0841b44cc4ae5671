/**
 * A node's kube-proxy as the API server sees it: what client-go's reflectors do since its lists are watches, over one HTTP/2 connection.
 *
 * Source: client-go `tools/cache/reflector.go` (`ListAndWatchWithContext`, `watchList`, `watch`), apimachinery `wait.Backoff`.
 *
 * @module
 */
import { systemClock } from "../../lib/kernel/clock.ts";
import { piecesOf } from "../../lib/source/kube/kube_answer.ts";
import { acceptHeader, PROTOBUF } from "../../lib/source/kube/kube_formats.ts";
import type { WatchedResource } from "../../lib/source/kube/kube_resources.ts";
import { EventReader } from "../../lib/source/decode/protobuf_stream.ts";
import { FrameCutter } from "./herd_frames.ts";
import { type HerdClientOptions, kindsOf } from "./herd_kproxy.ts";

const BACKOFF_INITIAL_MS = 800;
const BACKOFF_MAX_MS = 30_000;
const BACKOFF_RESET_MS = 120_000;
const MIN_WATCH_S = 300;
const SHORT_WATCH_MS = 1_000;

/** The server said no. */
class StatusError extends Error {
  constructor(readonly status: number) {
    super(`status ${status}`);
    this.name = "StatusError";
  }
}

/** No answer; as Go's transport asks anew where a connection died, that is because nobody listens. */
class ConnectError extends Error {
  constructor(cause: unknown) {
    super("connection refused", { cause });
    this.name = "ConnectError";
  }
}

/** The wait doubles with each call, plus up to as much by chance; two minutes without a call begin anew. */
class Backoff {
  readonly #random: () => number;
  #nextMs = BACKOFF_INITIAL_MS;
  #calledMs = -Infinity;

  constructor(random: () => number) {
    this.#random = random;
  }

  waitMs(): number {
    const nowMs = systemClock.nowMs();
    if (nowMs - this.#calledMs > BACKOFF_RESET_MS) this.#nextMs = BACKOFF_INITIAL_MS;
    this.#calledMs = nowMs;
    const baseMs = this.#nextMs;
    this.#nextMs = Math.min(2 * baseMs, BACKOFF_MAX_MS);
    return baseMs * (1 + this.#random());
  }
}

/** What all kinds of a client share. */
interface Shared extends HerdClientOptions {
  readonly http: Deno.HttpClient;
  readonly token: () => Promise<string>;
  readonly refused: () => void;
}

/** Runs until `signal` aborts. */
export async function runClientGoClient(options: HerdClientOptions, signal: AbortSignal): Promise<void> {
  const { access, client } = options;
  const { certificateAuthority, identity } = access;
  if (certificateAuthority?.kind !== "text" || identity.kind !== "tokenFile") {
    throw new TypeError("A herd has its certificate authority as text and its token in a file");
  }
  using http = Deno.createHttpClient({ caCerts: [certificateAuthority.pem], http1: false, http2: true });
  let token: string | undefined;
  const shared: Shared = {
    ...options,
    http,
    token: async () => token ??= (await Deno.readTextFile(identity.path)).trim(),
    refused: () => token = undefined,
  };
  await Promise.all(kindsOf(client).map((resource) => new ClientGoReflector(shared, resource).run(signal)));
}

class ClientGoReflector {
  readonly #shared: Shared;
  readonly #resource: WatchedResource;
  readonly #backoff: Backoff;
  #version = "";
  #isVersionGone = false;
  #isFollowing = false;

  constructor(shared: Shared, resource: WatchedResource) {
    this.#shared = shared;
    this.#resource = resource;
    this.#backoff = new Backoff(shared.random);
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#listAndWatch(signal);
      } catch (error) {
        if (!signal.aborted && !isExpected(error)) throw error;
      }
      await systemClock.sleep(this.#backoff.waitMs(), signal);
    }
  }

  async #listAndWatch(signal: AbortSignal): Promise<void> {
    const hasEnded = await this.#watchList(signal);
    if (hasEnded) await this.#watch(signal);
  }

  /** A list as the beginning of a watch, and that watch; resolves to true if it ended in good order. */
  async #watchList(signal: AbortSignal): Promise<boolean> {
    for (;;) {
      try {
        return await this.#follow({
          resourceVersion: this.#isVersionGone ? "" : this.#version,
          resourceVersionMatch: "NotOlderThan",
          sendInitialEvents: "true",
        }, signal);
      } catch (error) {
        if (signal.aborted) throw error;
        if (isRefused(error)) await systemClock.sleep(this.#backoff.waitMs(), signal);
        else if (error instanceof StatusError && error.status === 410) this.#isVersionGone = true;
        else throw error;
      }
    }
  }

  /** Watches from the last version on, again and again as long as watches end in good order. */
  async #watch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (!await this.#follow({ resourceVersion: this.#version }, signal)) return;
      } catch (error) {
        if (signal.aborted || !isRefused(error)) throw error;
        await systemClock.sleep(this.#backoff.waitMs(), signal);
      }
    }
  }

  /**
   * One watch to its end; resolves to false if it told of an error or ended at once.
   *
   * @throws {Error} if it could not be opened
   */
  async #follow(query: Readonly<Record<string, string>>, signal: AbortSignal): Promise<boolean> {
    const startMs = systemClock.nowMs();
    const isList = "sendInitialEvents" in query;
    const body = await this.#open(query, signal);
    let events = 0, isWhole = !isList;
    if (isWhole) this.#setFollowing(true);
    try {
      const [cutter, reader] = [new FrameCutter(), new EventReader(this.#resource.objectKind)];
      for await (const piece of piecesOf(body, { signal, note: () => {} })) {
        this.#shared.counts.received(piece.length);
        for (const { type, bytes, endsList } of cutter.frames(piece)) {
          events++;
          if (type === "ADDED") continue;
          const { object } = reader.read(bytes) as { object: ReadObject };
          if (type === "ERROR") return this.#told(object, isWhole);
          this.#version = object.metadata?.resourceVersion ?? this.#version;
          if (!endsList) continue;
          [isWhole, this.#isVersionGone] = [true, false];
          this.#setFollowing(true);
        }
      }
    } catch (error) {
      // A connection that breaks looks to client-go like a watch that ends, once it is open.
      if (signal.aborted || !isWhole) throw error;
    } finally {
      this.#setFollowing(false);
    }
    if (!isWhole) throw new TypeError("The watch ended before its list");
    return events > 0 || systemClock.nowMs() - startMs >= SHORT_WATCH_MS;
  }

  /** @throws {StatusError} before the end of a list */
  #told({ code = 500 }: ReadObject, isWhole: boolean): boolean {
    if (!isWhole) throw new StatusError(code);
    return false;
  }

  async #open(
    query: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<ReadableStream<Uint8Array>> {
    const { access, http, counts, random, token, refused } = this.#shared;
    const search = new URLSearchParams({
      ...this.#resource.selectors[0],
      watch: "1",
      allowWatchBookmarks: "true",
      timeoutSeconds: String(Math.floor(MIN_WATCH_S * (1 + random()))),
      ...query,
    });
    const headers = { accept: acceptHeader(PROTOBUF), authorization: `Bearer ${await token()}` };
    let response: Response;
    try {
      response = await fetch(`${access.server}${this.#resource.path}?${search}`, {
        client: http,
        headers,
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      counts.answered("<error>");
      throw new ConnectError(error);
    }
    counts.answered(String(response.status));
    if (response.status === 200 && response.body !== null) return response.body;
    await response.body?.cancel();
    if (response.status === 401) refused();
    throw new StatusError(response.status);
  }

  #setFollowing(isFollowing: boolean): void {
    if (this.#isFollowing === isFollowing) return;
    this.#isFollowing = isFollowing;
    this.#shared.counts.follows(this.#shared.client, isFollowing);
  }
}

interface ReadObject {
  readonly code?: number;
  readonly metadata?: { readonly resourceVersion?: string };
}

function isRefused(error: unknown): boolean {
  return error instanceof ConnectError || error instanceof StatusError && error.status === 429;
}

/** What a server and its connections may do; anything else is a fault of this program. */
function isExpected(error: unknown): boolean {
  return error instanceof StatusError || error instanceof TypeError || error instanceof Deno.errors.Http;
}
