/**
 * A handler that keeps the objects that a source delivers, and checks that its events are consistent.
 *
 * @module
 */
import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import type { ApiObject } from "../../lib/model/objects.ts";
import { createLogger, type Logger } from "../../lib/observe/log.ts";
import {
  identityOf,
  type Rejection,
  type ResourceEventHandler,
  type ResourceKind,
  type Source,
  type SourceEvent,
} from "../../lib/source/source.ts";

/**
 * The recorder; see the module. An inconsistent event fails waits for it, and the end of {@linkcode runSource}: a source
 * may take its handler's error for a connection error and retry.
 */
export class SourceRecorder implements ResourceEventHandler {
  readonly batches: (readonly SourceEvent[])[] = [];
  readonly rejections: Rejection[] = [];
  readonly synced: ResourceKind[] = [];
  /** Objects by {@linkcode identityOf}. */
  readonly objects = new Map<string, ApiObject>();
  #wake: (() => void)[] = [];
  #problem: unknown;
  readonly #keepsObjects: boolean;

  /** @param keepsObjects true: an unchanged object is the same instance as before; false: an equal one */
  constructor(keepsObjects = true) {
    this.#keepsObjects = keepsObjects;
  }

  events(batch: readonly SourceEvent[]): void {
    this.batches.push(batch);
    try {
      assert(batch.length > 0, "an empty batch");
      for (const event of batch) this.#take(event);
    } catch (error) {
      this.#problem ??= error;
      throw error;
    } finally {
      this.#notify();
    }
  }

  /** @throws {AssertionError} if an event was inconsistent */
  assertSound(): void {
    if (this.#problem !== undefined) throw this.#problem;
  }

  rejected(rejection: Rejection): void {
    this.rejections.push(rejection);
    this.#notify();
  }

  /** Events like `add Service default/a`, in order, from the given batch on. */
  story(fromBatch = 0): string[] {
    return this.batches.slice(fromBatch).flat().map((event) =>
      event.type === "synced"
        ? `synced ${event.kind}`
        : `${event.type} ${identityOf(event.type === "delete" ? event.old : event.object)}`
    );
  }

  /** Identities of the current objects, sorted. */
  names(kind = ""): string[] {
    return [...this.objects.keys()].filter((name) => name.startsWith(kind)).sort();
  }

  /**
   * Resolves when the condition holds, checked after each delivery.
   *
   * @throws {AssertionError} if an event was inconsistent
   */
  async until(condition: () => boolean, what: string, timeoutMs = 300_000): Promise<void> {
    const deadlineMs = Date.now() + timeoutMs;
    for (;;) {
      this.assertSound();
      if (condition()) return;
      const leftMs = deadlineMs - Date.now();
      if (leftMs <= 0) {
        throw new Error(
          `Not within ${timeoutMs} ms: ${what}; there is ${this.names().slice(0, 20).join(", ")}`,
        );
      }
      let timer: ReturnType<typeof setTimeout> | undefined;
      await new Promise<void>((resolve) => {
        this.#wake.push(resolve);
        timer = setTimeout(resolve, Math.min(leftMs, 50));
      });
      clearTimeout(timer);
    }
  }

  /** Resolves when the first lists of all three kinds have arrived. */
  untilSynced(timeoutMs?: number): Promise<void> {
    return this.until(() => this.synced.length === 3, "first lists", timeoutMs);
  }

  /** Resolves when an object exists, or does not. */
  untilThere(name: string, there = true, timeoutMs?: number): Promise<void> {
    return this.until(
      () => this.objects.has(name) === there,
      `${name} ${there ? "there" : "gone"}`,
      timeoutMs,
    );
  }

  #notify(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }

  #take(event: SourceEvent): void {
    if (event.type === "synced") {
      assertEquals(this.synced.includes(event.kind), false, `${event.kind} synced twice`);
      this.synced.push(event.kind);
      return;
    }
    const name = identityOf(event.type === "delete" ? event.old : event.object);
    const old = event.type === "add" ? undefined : event.old;
    if (this.#keepsObjects) assertStrictEquals(old, this.objects.get(name), name);
    else assertEquals(old, this.objects.get(name), name);
    if (event.type === "delete") this.objects.delete(name);
    else this.objects.set(name, event.object);
  }
}

/** Asserts that a source holds exactly the objects that it has delivered and not deleted, each once. */
export function assertHolds(source: Source, delivered: ReadonlyMap<string, ApiObject>): void {
  if (source.objects === undefined) return;
  const held = [...source.objects()];
  const sorted = (objects: Iterable<ApiObject>): [string, ApiObject][] =>
    [...objects].map((object): [string, ApiObject] => [identityOf(object), object])
      .sort(([one], [other]) => one < other ? -1 : 1);
  assertEquals(sorted(held), sorted(delivered.values()), `what ${source.name} holds`);
}

/** A source that runs in a test. */
export interface RunningSource extends AsyncDisposable {
  readonly recorder: SourceRecorder;
  /** Log lines so far, of every verbosity. */
  readonly lines: readonly string[];
  /** Objects that it holds now. */
  objects(): Iterator<ApiObject>;
  /** Objects that it refuses now: `Service shop/web`. */
  refused(): readonly string[];
}

/** Runs a source until disposed. `make` gets the logger to use. */
export function runSource(
  make: (log: Logger) => Source,
  recorder: SourceRecorder = new SourceRecorder(),
): RunningSource {
  const lines: string[] = [];
  const log = createLogger({
    format: "text",
    verbosity: 10,
    write: (line) => lines.push(line),
    nowMs: () => Date.now(),
    pid: 1,
  });
  const stop = new AbortController();
  const source = make(log);
  const running = source.run(recorder, stop.signal);
  // Reported when disposed; until then it must not count as unhandled.
  running.catch((error) => lines.push(`source failed: ${error}`));
  return {
    recorder,
    lines,
    objects: () => (source.objects?.() ?? [])[Symbol.iterator](),
    refused: () => [...source.refusals?.() ?? []].map(({ object }) => object),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      recorder.assertSound();
      assertHolds(source, recorder.objects);
    },
  };
}
