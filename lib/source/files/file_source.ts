/**
 * Objects from manifest files: YAML or JSON, watched.
 *
 * @module
 */
import { inTurns, Mutex, within } from "../../kernel/clock.ts";
import { toEnd } from "../../text/steps.ts";
import type { ApiObject } from "../../model/objects.ts";
import { type Logger, silentLogger } from "../../observe/log.ts";
import {
  type BadEntry,
  classifyPaths,
  decodeText,
  type FileCheck,
  type FoundFile,
  listFiles,
  type ManifestPath,
  orderPrefix,
  readBounded,
  readStableText,
  readStdin,
  STDIN_PATH,
} from "./manifest_files.ts";
import { FolderWatch, parentOf } from "./folder_watch.ts";
import { type ForeignObjects, type ManifestFile, ManifestStore } from "./manifest_store.ts";
import { type Manifest, readingOf, readManifest, refusingOwnIps } from "../decode/manifest_text.ts";
import type { Rejection, ResourceEventHandler, ResourceKind, Source, SourceEvent } from "../source.ts";

/** Options of {@linkcode FileSource}. */
export interface FileSourceOptions {
  /** Files, folders (their `*.yaml *.yml *.json`, not deeper), or `-` for standard input. The earlier path wins. */
  readonly paths: readonly string[];
  readonly log: Logger;
  /** How long files must be quiet before they are read. @default {30} */
  readonly debounceMs?: number;
  /** @default {5000} */
  readonly pollMs?: number;
  /** How long a file that had objects may be empty before that is believed: many tools truncate, then write. @default {1000} */
  readonly emptyGraceMs?: number;
  /**
   * The node's own addresses: refused as cluster IPs, which would cut the node off from itself. Read anew for every file.
   * @default {none}
   */
  readonly ownIps?: () => readonly string[];
  /** Decides whether a file may be read. @default {every file may be read} */
  readonly checkFile?: FileCheck;
  /** Read once, if `-` is among the paths. @default {Deno.stdin.readable} */
  readonly stdin?: ReadableStream<Uint8Array>;
}

interface KnownFile {
  readonly file: FoundFile;
  /** Text of the file; undefined if it could not be read. */
  readonly text: string | undefined;
  /** Manifest of the last content that was not broken. */
  readonly manifest: Manifest | undefined;
  /** Since when (milliseconds, monotonic) it has been empty, as long as its former objects stay. */
  readonly emptySinceMs?: number;
}

/** A file that is being read. */
interface Reading {
  readonly file: FoundFile;
  /** Aborts if the file is gone, or may not be read any more. */
  readonly end: AbortController;
  /** The file changed meanwhile: it is read again afterwards, so that one that changes all the time comes to its end, too. */
  isStale: boolean;
  /** True: other files no longer wait for it. */
  isLong: boolean;
  /** Resolves when its content is in force, or refused. */
  done: Promise<void>;
}

/** Longest work on a file before other tasks have their turn. */
const TURN_MS = 5;
/** How long other files wait for one that is being read. */
const SHORT_MS = 200;
/** A file that takes longer is named in the log. */
const LONG_MS = 5_000;

const KINDS: readonly ResourceKind[] = ["services", "endpointslices", "nodes"];

/**
 * Delivers what manifest files hold, and every change of them: edits, renames into place, ConfigMap link swaps, deletions.
 *
 * - A broken file keeps its last good content in force, a refused object its last good version.
 * - An object in two files counts where it comes first: by path as given, then by file name.
 * - A deleted file takes its objects along; a folder that vanishes as a whole does not (it was rather unmounted).
 * - Services and slices that kube-proxy's selectors leave out are left out.
 * - Every Node is delivered, whatever its name.
 * - Objects of other kinds, such as Deployments, are left out with a line in the log.
 */
export class FileSource implements Source {
  readonly name: string;
  readonly #options: FileSourceOptions;
  readonly #store: ManifestStore;
  readonly #known = new Map<string, KnownFile>();
  /** Files that are being read, by their `order`. */
  readonly #readings = new Map<string, Reading>();
  /** Held while the store is changed or checked out. */
  readonly #lock = new Mutex();
  #gone: ReadonlySet<number> = new Set();
  #end: AbortSignal = new AbortController().signal;

  constructor(options: FileSourceOptions) {
    this.name = `files ${options.paths.join(", ")}`;
    this.#options = options;
    this.#store = new ManifestStore();
  }

  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    const { log, debounceMs = 30, pollMs = 5000 } = this.#options;
    this.#end = signal;
    const paths = await classifyPaths(this.#options.paths);
    if (signal.aborted) return;
    await this.#takeStdin(paths, signal);
    if (signal.aborted) return;
    const folders = [...new Set(paths.filter(isWatched).map(folderOf))];
    await using watch = new FolderWatch({ folders, debounceMs, pollMs, log });
    await watch.refresh();
    await this.#scan(paths, watch, new Set());
    // The set of objects is complete only when every file is read.
    await this.#untilRead();
    if (signal.aborted) return;
    await this.#deliver(handler, "Manifests read", KINDS.map((kind) => ({ type: "synced", kind })));
    for (;;) {
      const changed = await watch.next(signal);
      if (changed === null) return await this.#untilRead();
      try {
        await watch.refresh();
        await this.#scan(paths, watch, changed);
      } catch (error) {
        log.error("Cannot look at the manifests, trying again", error, { source: this.name });
      }
      await this.#deliver(handler, "Manifests changed", []);
    }
  }

  objects(): Iterable<ApiObject> {
    return this.#store.objects();
  }

  refusals(): Iterable<Rejection> {
    return this.#store.refusals();
  }

  async #untilRead(): Promise<void> {
    await Promise.all([...this.#readings.values()].map(({ done }) => done));
  }

  async #takeStdin(paths: readonly ManifestPath[], signal: AbortSignal): Promise<void> {
    const index = paths.findIndex(({ kind }) => kind === "stdin");
    if (index < 0) return;
    const text = await readStdin(this.#options.stdin ?? Deno.stdin.readable, signal);
    toEnd(this.#setting(stdinFile(index), readManifest(text)));
  }

  async #scan(
    paths: readonly ManifestPath[],
    watch: FolderWatch,
    changed: ReadonlySet<string>,
  ): Promise<void> {
    const { files, bad, gone } = await listFiles(paths);
    this.#noteGone(paths, gone);
    const seen = new Set([...files, ...bad].map(({ order }) => order));
    for (const entry of bad) await this.#noteBad(entry);
    for (const file of files) {
      const reading = this.#readings.get(file.order);
      if (reading !== undefined && !reading.end.signal.aborted) {
        reading.isStale ||= reading.file.signature !== file.signature || changed.has(file.baseName);
        continue;
      }
      const known = this.#known.get(file.order);
      const same = known !== undefined && known.file.signature === file.signature &&
        !changed.has(file.baseName) && known.emptySinceMs === undefined;
      if (!same) await this.#read(file, known, watch);
    }
    const isGone = (order: string): boolean =>
      !seen.has(order) && !gone.some((index) => order.startsWith(orderPrefix(index)));
    for (const [order, { end }] of this.#readings) if (isGone(order)) end.abort();
    // Under the lock: by then `#known` has the file that an aborted reading was putting into force.
    await this.#lock.run(() => {
      for (const [order, { file }] of this.#known) {
        if (!isGone(order)) continue;
        this.#known.delete(order);
        this.#store.remove(file);
      }
      return Promise.resolve();
    });
  }

  async #noteBad({ problem, ...entry }: BadEntry): Promise<void> {
    this.#readings.get(entry.order)?.end.abort();
    await this.#refuse({ ...entry, inode: "", signature: "" }, undefined, problem);
  }

  #noteGone(paths: readonly ManifestPath[], gone: readonly number[]): void {
    for (const index of gone) {
      if (this.#gone.has(index)) continue;
      const folder = paths[index]?.path;
      this.#options.log.warn("Manifest folder is gone; its last content stays in force", { folder });
    }
    this.#gone = new Set(gone);
  }

  async #read(file: FoundFile, known: KnownFile | undefined, watch: FolderWatch): Promise<void> {
    let text: string | undefined;
    try {
      text = await readStableText(file, this.#options.checkFile);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return;
      return await this.#refuse(file, undefined, reasonOf(error));
    }
    if (text === undefined) {
      watch.touch(file.baseName);
      return;
    }
    if (text === known?.text && known.emptySinceMs === undefined) {
      this.#known.set(file.order, { ...known, file });
      return;
    }
    if (text.trim() === "" && this.#isBeingWritten(file, known, watch)) return;
    const end = new AbortController();
    const reading: Reading = { file, end, isStale: false, isLong: false, done: Promise.resolve() };
    this.#readings.set(file.order, reading);
    const signal = AbortSignal.any([this.#end, end.signal]);
    reading.done = this.#take(file, text, known?.manifest, signal).finally(() => {
      if (this.#readings.get(file.order) === reading) this.#readings.delete(file.order);
      if (reading.isStale) watch.touch(file.baseName);
      else if (reading.isLong) watch.wakeAfter(0);
    });
    reading.isLong = await within(reading.done.then(() => true), SHORT_MS) === null;
  }

  /** Reads a text and puts its objects into force, unless `signal` aborts. */
  async #take(
    file: FoundFile,
    text: string,
    previous: Manifest | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const steps = readingOf(text, { json: isJson(file), previous });
      const manifest = await readInTurns(file.path, steps, this.#options.log, signal);
      await this.#lock.run(async () => {
        signal.throwIfAborted();
        await inTurns(this.#setting(file, manifest), { turnMs: TURN_MS });
        // A broken text may be very long, and is not needed again.
        const isBroken = manifest.problem !== undefined;
        this.#known.set(
          file.order,
          isBroken ? { file, text: undefined, manifest: previous } : { file, text, manifest },
        );
      });
    } catch (error) {
      // Whatever is in the text, such as one that is too long or too deep for the runtime: the other files go on.
      if (!signal.aborted) await this.#refuse(file, text, reasonOf(error));
    }
  }

  /** Reports a file that cannot be read; the former content of the name stays in force. */
  async #refuse(file: FoundFile, text: string | undefined, reason: string): Promise<void> {
    await this.#lock.run(() => {
      this.#known.set(file.order, { file, text, manifest: this.#known.get(file.order)?.manifest });
      this.#store.unreadable(file, reason);
      return Promise.resolve();
    });
  }

  *#setting(file: ManifestFile, manifest: Manifest): Generator<void, void> {
    const ownIps = new Set(this.#options.ownIps?.() ?? []);
    const allowed = ownIps.size === 0 ? manifest : yield* refusingOwnIps(manifest, ownIps);
    yield* this.#store.set(file, allowed);
  }

  /** True as long as an empty file that had objects is given time to be filled. */
  #isBeingWritten(file: FoundFile, known: KnownFile | undefined, watch: FolderWatch): boolean {
    if (known === undefined || (known.manifest?.items.length ?? 0) === 0) return false;
    const nowMs = performance.now();
    const emptySinceMs = known.emptySinceMs ?? nowMs;
    const { emptyGraceMs = 1000 } = this.#options;
    if (nowMs - emptySinceMs >= emptyGraceMs) return false;
    this.#known.set(file.order, { ...known, file, emptySinceMs });
    watch.wakeAfter(emptyGraceMs - (nowMs - emptySinceMs));
    return true;
  }

  async #deliver(
    handler: ResourceEventHandler,
    message: string,
    synced: readonly SourceEvent[],
  ): Promise<void> {
    const changes = await this.#lock.run(() => inTurns(this.#store.checkout(), { turnMs: TURN_MS }));
    if (this.#end.aborted) return;
    const { events, rejections, foreign } = changes;
    for (const { path, kind, count } of foreign) {
      this.#options.log.info("Manifest objects of a kind that is not read", { file: path, kind, count });
    }
    for (const rejection of rejections) handler.rejected(rejection);
    const batch = [...events, ...synced];
    if (batch.length === 0) return;
    const count = (type: SourceEvent["type"]): number => events.filter((event) => event.type === type).length;
    this.#options.log.info(message, {
      files: this.#known.size,
      added: count("add"),
      updated: count("update"),
      deleted: count("delete"),
    }, 1);
    handler.events(batch);
  }
}

function isWatched({ kind }: ManifestPath): boolean {
  return kind !== "stdin";
}

function folderOf({ path, kind }: ManifestPath): string {
  if (kind === "folder") return path;
  return parentOf(path);
}

function isJson({ path }: ManifestFile): boolean {
  return path.endsWith(".json");
}

function reasonOf(error: unknown): string {
  return `cannot be read: ${error instanceof Error ? error.message : String(error)}`;
}

function stdinFile(index: number): ManifestFile {
  return { path: "stdin", order: orderPrefix(index) };
}

/** Options of {@linkcode openManifests}. */
export interface ManifestsOptions {
  /** How many milliseconds files must be quiet before they are read. @default {30} */
  readonly debounceMs?: number;
  /** Logs files and folders that cannot be watched or read. @default {not reported} */
  readonly log?: Logger;
}

/**
 * The objects in files and folders (their `*.yaml`, `*.yml`, `*.json`, not deeper), watched: edits, renames into place, deletions.
 * Of two objects of the same name that of the earlier path counts.
 *
 * @throws {Deno.errors.NotFound} if a path does not exist
 */
export async function openManifests(
  paths: readonly string[],
  options: ManifestsOptions = {},
): Promise<Source> {
  await classifyPaths(paths);
  return new FileSource({ paths, log: silentLogger, ...options });
}

/** Result of {@linkcode readManifests}. */
export interface ReadManifests {
  /** Objects in force, selected and merged as {@linkcode FileSource} does; by precedence of their files. */
  readonly objects: readonly ApiObject[];
  /** Files that cannot be read, and objects that are refused; none of them is among the objects. */
  readonly problems: readonly Rejection[];
  /** Objects that were left out because of their kind. */
  readonly foreign: readonly ForeignObjects[];
  /** Objects that kube-proxy's selectors exclude, and why. */
  readonly excluded: readonly Rejection[];
}

/** Options of {@linkcode readManifests}. */
export interface ReadManifestsOptions {
  /** Read, if `-` is among the paths. @default {Deno.stdin.readable} */
  readonly stdin?: ReadableStream<Uint8Array>;
}

/**
 * Reads the objects in files and folders (their `*.yaml`, `*.yml`, `*.json`, not deeper) once, for callers that want to know what they
 * would mean. Nothing in a file makes it fail: what is wrong there is among the problems.
 *
 * @throws {Deno.errors.NotFound} if a path does not exist
 */
export async function readManifests(
  paths: readonly string[],
  options: ReadManifestsOptions = {},
): Promise<ReadManifests> {
  const store = new ManifestStore();
  const classified = await classifyPaths(paths);
  const stdinIndex = classified.findIndex(({ path }) => path === STDIN_PATH);
  if (stdinIndex >= 0) {
    toEnd(
      store.set(stdinFile(stdinIndex), readManifest(await readStdin(options.stdin ?? Deno.stdin.readable))),
    );
  }
  const { files, bad } = await listFiles(classified);
  for (const { problem, ...entry } of bad) store.unreadable(entry, problem);
  for (const file of files) {
    try {
      const text = decodeText(await readBounded(file.path));
      toEnd(store.set(file, readManifest(text, { json: isJson(file) })));
    } catch (error) {
      store.unreadable(file, reasonOf(error));
    }
  }
  const { events, rejections, foreign } = toEnd(store.checkout());
  const objects = events.flatMap((event) => event.type === "add" ? [event.object] : []);
  return { objects, problems: rejections, foreign, excluded: [...store.excluded()] };
}

/**
 * Reads a text in turns. A file that takes longer than `longMs` is named in the log, then and at its end.
 *
 * @throws what reading throws, or the reason of `signal` once that aborts
 */
export async function readInTurns<T>(
  file: string,
  steps: Iterator<void, T>,
  log: Logger,
  signal: AbortSignal,
  longMs: number = LONG_MS,
): Promise<T> {
  const startMs = performance.now();
  const values = () => ({ file, seconds: Math.round((performance.now() - startMs) / 100) / 10 });
  let isLong = false;
  const timer = setTimeout(() => {
    isLong = true;
    log.warn("A manifest file takes long to read; others go on, and what it held stays in force", values());
  }, longMs);
  try {
    const read = await inTurns(steps, { turnMs: TURN_MS, signal });
    if (isLong) log.warn("A manifest file took long to read", values());
    return read;
  } finally {
    clearTimeout(timer);
  }
}
