/**
 * A source with a snapshot: the origin's objects are kept on disk, and serve at the next start until the origin answers.
 *
 * @module
 */
import { type Clock, systemClock } from "../../kernel/clock.ts";
import type { ApiObject } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import {
  identityOf,
  type Rejection,
  RESOURCE_OF,
  type ResourceEventHandler,
  type ResourceKind,
  type RestoredState,
  runTogether,
  type Source,
  type SourceEvent,
} from "../source.ts";
import { readSnapshot, SnapshotSaver, writeSnapshot } from "./snapshot_file.ts";
import { type Snapshot, SnapshotError } from "./snapshot_format.ts";
import { isoTime } from "../../text/words.ts";

/** Waits for the origin, in milliseconds. */
export interface SnapshotPatience {
  /** Wait until the snapshot is served. */
  readonly silentMs: number;
  /** The same if the origin has answered a request by then: its lists are on their way. */
  readonly answeringMs: number;
}

/** A start with an API server at hand must not go through an older state first; one without should not wait. */
const SNAPSHOT_PATIENCE: SnapshotPatience = { silentMs: 1_000, answeringMs: 10_000 };

/** Receives the results of writing the file. */
export interface SnapshotObserver {
  saved(file: { readonly savedAtMs: number; readonly bytes: number }): void;
  saveFailed(): void;
}

/** Dependencies of a {@linkcode SnapshotSource}. */
export interface SnapshotSourceOptions {
  readonly source: Source;
  /** True if the origin has answered some request as wanted: its lists may be waited for. */
  readonly hasAnswered: () => boolean;
  /** The snapshot's file. */
  readonly path: string;
  /** Greatest age at which it is served, in milliseconds; 0: any age. */
  readonly maxAgeMs: number;
  /** Name of this node: a snapshot of another node is not used. */
  readonly node: string;
  readonly log: Logger;
  readonly observer: SnapshotObserver;
  /** Wall clock, in milliseconds since the epoch. */
  readonly epochMs: () => number;
  /** @default {SNAPSHOT_PATIENCE} */
  readonly patience?: SnapshotPatience;
  /** Write interval of the {@linkcode SnapshotSaver}. */
  readonly intervalMs?: number;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/** How often an unchanged snapshot is written again within `maxAgeMs`. */
const WRITES_PER_AGE = 4;
/** An origin that was silent for longer does not count as alive. */
const ALIVE_MS = 180_000;
/** Timers hold 31 bits. */
const MAX_SLEEP_MS = 2 ** 31 - 1;
/** Kinds that rules cannot be made without; a Node that may not be read does not make a state old. */
const ESSENTIAL: readonly ResourceKind[] = ["services", "endpointslices"];

/**
 * Delivers what `source` does. If its first lists of Services and endpoints are not in after some time, the snapshot's objects
 * are delivered instead, of the kinds that are missing. The first list of a kind then replaces them as a whole, in one batch.
 *
 * If a file cannot serve, the log has the reason, and the source works as it would without.
 */
export class SnapshotSource implements Source {
  readonly name: string;
  readonly #options: SnapshotSourceOptions;
  /** Handler of the present run. */
  #state: RestoringHandler | null = null;

  constructor(options: SnapshotSourceOptions) {
    this.name = options.source.name;
    this.#options = options;
  }

  /** @throws whatever the source throws */
  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    const { source, path, log, clock = systemClock, observer, intervalMs } = this.#options;
    const saver = new SnapshotSaver({
      path,
      log,
      clock,
      save: () => this.#save([...this.objects()]),
      onFailure: () => observer.saveFailed(),
      ...(intervalMs === undefined ? {} : { intervalMs }),
    });
    const state = new RestoringHandler(handler, { log, clock, onChange: () => saver.changed() });
    this.#state = state;
    const end = new AbortController();
    // The last write is waited for.
    await runTogether([
      (until) => source.run(state, until).finally(() => end.abort()),
      (until) => this.#restoreIfSilent(state, until),
      (until) => this.#keepYoung(state, saver, until),
      (until) => saver.run(until),
    ], AbortSignal.any([signal, end.signal]));
  }

  *objects(): Generator<ApiObject> {
    // In this order: objects that the source confirms meanwhile move from the first to the second.
    yield* this.#state?.unconfirmed() ?? [];
    yield* this.#options.source.objects?.() ?? [];
  }

  refusals(): Iterable<Rejection> {
    return this.#options.source.refusals?.() ?? [];
  }

  async #save(objects: readonly ApiObject[]): Promise<number> {
    const { path, node, observer, epochMs } = this.#options;
    const savedAtMs = epochMs();
    const bytes = await writeSnapshot(path, { savedAtMs, node, server: this.name }, objects);
    observer.saved({ savedAtMs, bytes });
    return bytes;
  }

  async #restoreIfSilent(state: RestoringHandler, signal: AbortSignal): Promise<void> {
    const { patience = SNAPSHOT_PATIENCE, clock = systemClock, hasAnswered } = this.#options;
    const listedOrOver = AbortSignal.any([signal, state.listed]);
    await clock.sleep(patience.silentMs, listedOrOver);
    if (hasAnswered()) await clock.sleep(patience.answeringMs - patience.silentMs, listedOrOver);
    if (listedOrOver.aborted) return;
    const snapshot = await this.#read();
    if (snapshot === undefined || listedOrOver.aborted) return;
    const { maxAgeMs, epochMs, log, path } = this.#options;
    const { savedAtMs } = snapshot;
    const expiresAtMs = maxAgeMs === 0 ? null : savedAtMs + maxAgeMs;
    if (expiresAtMs === null || epochMs() <= expiresAtMs) return state.restore(snapshot, expiresAtMs);
    log.warn("The API server has not answered yet, the snapshot is too old to be served", {
      file: path,
      savedAt: isoTime(savedAtMs),
      maxAgeSeconds: maxAgeMs / 1000,
    });
    state.refuse(savedAtMs, expiresAtMs);
  }

  /** Writes an unchanged snapshot again: its age must say how long ago it was right, not when the cluster last changed. */
  async #keepYoung(state: RestoringHandler, saver: SnapshotSaver, signal: AbortSignal): Promise<void> {
    const { maxAgeMs, clock = systemClock } = this.#options;
    while (maxAgeMs > 0 && !signal.aborted) {
      await clock.sleep(Math.min(maxAgeMs / WRITES_PER_AGE, MAX_SLEEP_MS), signal);
      if (!signal.aborted && state.isConfirmed) saver.changed();
    }
  }

  async #read(): Promise<Snapshot | undefined> {
    const { path, node, log } = this.#options;
    try {
      const snapshot = await readSnapshot(path, { node, server: this.name });
      if (snapshot === undefined) {
        log.info("The API server has not answered yet, there is no snapshot", { file: path });
      }
      return snapshot;
    } catch (error) {
      if (!(error instanceof SnapshotError)) throw error;
      log.warn("The API server has not answered yet, the snapshot is of no use", {
        file: path,
        reason: `the file ${error.message}`,
      });
      return undefined;
    }
  }
}

/** Stands between the origin and the handler, and knows which of the snapshot's objects are in force. */
class RestoringHandler implements ResourceEventHandler {
  readonly #handler: ResourceEventHandler;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #onChange: () => void;
  /** Kind → time of the origin's last sign of life. */
  readonly #heardMs = new Map<ResourceKind, number>();
  /** Kinds that the handler knows to be complete. */
  readonly #synced = new Set<ResourceKind>();
  /** Kinds that the origin has listed. */
  readonly #listed = new Set<ResourceKind>();
  readonly #allListed = new AbortController();
  /** Objects of the snapshot that the origin has neither listed nor changed, by identity. */
  readonly #unconfirmed = new Map<string, ApiObject>();
  /** State of the snapshot, while it is needed. */
  #needed: Omit<RestoredState, "kinds"> | undefined;

  constructor(
    handler: ResourceEventHandler,
    { log, clock, onChange }: { log: Logger; clock: Clock; onChange: () => void },
  ) {
    this.#handler = handler;
    this.#log = log;
    this.#clock = clock;
    this.#onChange = onChange;
  }

  /** True if all that rules need was listed, and the origin is alive to report changes. */
  get isConfirmed(): boolean {
    const nowMs = this.#clock.nowMs();
    const isAlive = (kind: ResourceKind): boolean =>
      nowMs - (this.#heardMs.get(kind) ?? Number.NEGATIVE_INFINITY) <= ALIVE_MS;
    return this.#allListed.signal.aborted && ESSENTIAL.every(isAlive);
  }

  /** Aborted once the origin has listed all that rules need. */
  get listed(): AbortSignal {
    return this.#allListed.signal;
  }

  get wantsServiceCidrs(): boolean {
    return this.#handler.wantsServiceCidrs === true;
  }

  /** Objects of the snapshot that are in force. */
  unconfirmed(): Iterable<ApiObject> {
    return this.#unconfirmed.values();
  }

  /** Puts the snapshot's objects into force, of all kinds that the origin has not listed. */
  restore({ savedAtMs, objects, rejections }: Snapshot, expiresAtMs: number | null): void {
    const events: SourceEvent[] = [];
    for (const object of objects) {
      if (this.#listed.has(RESOURCE_OF[object.kind])) continue;
      this.#unconfirmed.set(identityOf(object), object);
      events.push({ type: "add", object });
    }
    this.#needed = { savedAtMs, expiresAtMs, isServed: true };
    this.#log.warn("The API server has not answered yet, serving from the snapshot", {
      savedAt: isoTime(savedAtMs),
      objects: events.length,
    });
    for (const rejection of rejections) this.#handler.rejected(rejection);
    for (const kind of ["nodes", ...ESSENTIAL] as const) {
      if (this.#synced.has(kind)) continue;
      this.#synced.add(kind);
      events.push({ type: "synced", kind });
    }
    this.#reportRestored();
    this.#handler.events(events);
  }

  /** Reports that the snapshot is too old to be served for the missing kinds. */
  refuse(savedAtMs: number, expiresAtMs: number): void {
    this.#needed = { savedAtMs, expiresAtMs, isServed: false };
    this.#reportRestored();
  }

  events(batch: readonly SourceEvent[]): void {
    const events: SourceEvent[] = [];
    let changed = false;
    for (const event of batch) {
      if (event.type === "synced") {
        changed = this.#takeSynced(event.kind, events) || changed;
      } else {
        changed = true;
        this.#takeChange(event, events);
      }
    }
    if (events.length > 0) this.#handler.events(events);
    if (changed && this.#allListed.signal.aborted) this.#onChange();
  }

  rejected(rejection: Rejection): void {
    this.#handler.rejected(rejection);
  }

  /** Called before a list is delivered: a kind that is synced without it was not listed. */
  heard(kind: ResourceKind): void {
    this.#heardMs.set(kind, this.#clock.nowMs());
    this.#handler.heard?.(kind);
  }

  failed(kind: ResourceKind, reason: string): void {
    this.#handler.failed?.(kind, reason);
  }

  refused(kind: ResourceKind, reason: string): void {
    this.#handler.refused?.(kind, reason);
  }

  #takeChange(event: Exclude<SourceEvent, { type: "synced" }>, events: SourceEvent[]): void {
    const object = event.type === "delete" ? event.old : event.object;
    const identity = identityOf(object);
    const old = this.#unconfirmed.get(identity);
    this.#unconfirmed.delete(identity);
    // A Node that could not be read at first is listed later without `synced`.
    this.#listed.add(RESOURCE_OF[object.kind]);
    if (old === undefined) events.push(event);
    else if (event.type === "delete") events.push({ type: "delete", old });
    // An object equal to that of the snapshot is delivered all the same, or two of each would be kept in memory.
    else events.push({ type: "update", old, object });
  }

  /** @returns true if this was the first list of the kind */
  #takeSynced(kind: ResourceKind, events: SourceEvent[]): boolean {
    const isList = this.#heardMs.has(kind);
    if (isList) {
      this.#listed.add(kind);
      for (const [identity, old] of this.#unconfirmed) {
        if (RESOURCE_OF[old.kind] !== kind) continue;
        this.#unconfirmed.delete(identity);
        events.push({ type: "delete", old });
      }
    }
    if (!this.#synced.has(kind)) {
      this.#synced.add(kind);
      events.push({ type: "synced", kind });
    }
    if (!isList) return false;
    if (ESSENTIAL.every((one) => this.#listed.has(one))) this.#allListed.abort();
    if (this.#needed !== undefined && ESSENTIAL.includes(kind)) this.#reportRestored();
    return true;
  }

  #reportRestored(): void {
    const needed = this.#needed;
    const kinds = ESSENTIAL.filter((kind) => !this.#listed.has(kind));
    if (needed !== undefined && kinds.length > 0) {
      this.#handler.restored?.({ ...needed, kinds });
      return;
    }
    this.#needed = undefined;
    this.#handler.restored?.(null);
    if (needed?.isServed === true) this.#log.info("The lists of the API server have replaced the snapshot");
  }
}
