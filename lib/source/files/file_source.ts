/**
 * Objects from manifest files: YAML or JSON, watched.
 *
 * @module
 */
import { inTurns, systemClock, within } from "../../kernel/clock.ts";
import { toEnd } from "../../text/steps.ts";
import type { ApiObject } from "../../model/objects.ts";
import { type Logger, silentLogger } from "../../observe/log.ts";
import {
  classifyPaths,
  decodeText,
  type FileCheck,
  type FoundFile,
  type FoundFiles,
  listFiles,
  type ManifestPath,
  orderPrefix,
  readBounded,
  readStableText,
  readStdin,
  STDIN_PATH,
} from "./manifest_files.ts";
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
  /** Interval between checks of the files; longer for more than three, at most 5 s. @default {50} */
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

interface ReadFile {
  /** The file as it was listed. */
  readonly file: FoundFile;
  /** Time when reading began, in milliseconds since the epoch. */
  readonly readMs: number;
  /** Content of the file; undefined if it could not be read, or is broken and so not kept. */
  readonly text: string | undefined;
}

interface KnownFile extends ReadFile {
  /** Manifest of the last content that was not broken. */
  readonly manifest: Manifest | undefined;
  /** Since when (milliseconds, monotonic) it has been empty, as long as its former objects stay. */
  readonly emptySinceMs?: number;
}

/** A file that is being read. */
interface Reading {
  readonly read: ReadFile;
  /** Aborts if the file is gone, or may not be read any more. */
  readonly end: AbortController;
  /** The manifest, or why the file cannot be read; null once `end` aborts. */
  readonly done: Promise<Manifest | string | null>;
  isDone: boolean;
}

/** Longest work on a file before other tasks have their turn. */
const TURN_MS = 5;
/** How long other files wait for one that is being read. */
const SHORT_MS = 200;
/** Reading time after which a file is named in the log. */
const LONG_MS = 5_000;

/** Debounce times after which files are read even if they still change. */
const MAX_DEBOUNCES = 10;
/** Checking a file takes some 40 µs: a third of a percent of a processor is enough. */
const REST_MS_PER_FILE = 15;
/** Rest between checks as a multiple of the quickest one: a slow machine checks less often, however few files. */
const REST_PER_LOOK = 30;
const MAX_REST_MS = 5_000;

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
  #gone: ReadonlySet<number> = new Set();
  #shortestLookMs = Infinity;
  #end: AbortSignal = new AbortController().signal;

  constructor(options: FileSourceOptions) {
    this.name = `files ${options.paths.join(", ")}`;
    this.#options = options;
    this.#store = new ManifestStore();
  }

  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    this.#end = signal;
    const paths = await classifyPaths(this.#options.paths);
    if (signal.aborted) return;
    await this.#takeStdin(paths, signal);
    if (signal.aborted) return;
    await this.#look(paths);
    // The set of objects is complete only when every file is read.
    await this.#untilRead();
    if (signal.aborted) return;
    await this.#takeReadings();
    await this.#deliver(handler, "Manifests read", KINDS.map((kind) => ({ type: "synced", kind })));
    const { log, pollMs = 50 } = this.#options;
    for (;;) {
      const restMs = Math.max(REST_MS_PER_FILE * this.#known.size, REST_PER_LOOK * this.#shortestLookMs);
      await systemClock.sleep(Math.max(pollMs, Math.min(restMs, MAX_REST_MS)), signal);
      if (signal.aborted) return await this.#untilRead();
      try {
        await this.#look(paths);
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

  /** Reads changed files, puts those that have been read into force, and forgets files that are gone. */
  async #look(paths: readonly ManifestPath[]): Promise<void> {
    const { files, gone } = await this.#quietFiles(paths);
    this.#noteGone(paths, gone);
    for (const file of files) if (this.#isChanged(file)) await this.#read(file);
    const seen = new Set(files.map(({ order }) => order));
    const isGone = (order: string): boolean =>
      !seen.has(order) && !gone.some((index) => order.startsWith(orderPrefix(index)));
    for (const order of this.#readings.keys()) if (isGone(order)) this.#stopReading(order);
    await this.#takeReadings();
    for (const [order, { file }] of this.#known) {
      if (!isGone(order)) continue;
      this.#known.delete(order);
      this.#store.remove(file);
    }
  }

  #stopReading(order: string): void {
    this.#readings.get(order)?.end.abort();
    this.#readings.delete(order);
  }

  /** Lists the files once all are quiet: none is read half-written, and files written together are read together. */
  async #quietFiles(paths: readonly ManifestPath[]): Promise<FoundFiles> {
    const { debounceMs = 30 } = this.#options;
    for (let rounds = 0;; rounds++) {
      const startMs = performance.now();
      const found = await listFiles(paths);
      this.#shortestLookMs = Math.min(this.#shortestLookMs, performance.now() - startMs);
      // A file server may have another clock.
      const quietMs = Math.abs(Date.now() - found.writtenMs);
      if (quietMs >= debounceMs || rounds === MAX_DEBOUNCES || this.#end.aborted) return found;
      await systemClock.sleep(debounceMs - quietMs, this.#end);
    }
  }

  #isChanged(file: FoundFile): boolean {
    const { order, signature, problem, settledMs } = file;
    // A file that changes while it is read is read again afterwards, so that one that always changes is taken, too.
    if (problem === null && this.#readings.has(order)) return false;
    const known = this.#known.get(order);
    return known === undefined || known.file.signature !== signature || known.emptySinceMs !== undefined ||
      (known.text !== undefined && known.readMs < settledMs);
  }

  #noteGone(paths: readonly ManifestPath[], gone: readonly number[]): void {
    for (const index of gone) {
      if (this.#gone.has(index)) continue;
      const folder = paths[index]?.path;
      this.#options.log.warn("Manifest folder is gone; its last content stays in force", { folder });
    }
    this.#gone = new Set(gone);
  }

  async #read(file: FoundFile): Promise<void> {
    const readMs = Date.now();
    if (file.problem !== null) {
      this.#stopReading(file.order);
      return this.#refuse({ file, readMs, text: undefined }, file.problem);
    }
    let text: string | undefined;
    try {
      text = await readStableText(file, this.#options.checkFile);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return;
      return this.#refuse({ file, readMs, text }, reasonOf(error));
    }
    if (text === undefined) return;
    const known = this.#known.get(file.order);
    if (text === known?.text && known.emptySinceMs === undefined) {
      this.#known.set(file.order, { ...known, file, readMs });
      return;
    }
    if (text.trim() === "" && this.#isBeingWritten(file, known)) return;
    const end = new AbortController();
    const done = this.#parse(file, text, known?.manifest, AbortSignal.any([this.#end, end.signal]));
    const reading: Reading = { read: { file, readMs, text }, end, done, isDone: false };
    this.#readings.set(file.order, reading);
    await within(done.finally(() => reading.isDone = true), SHORT_MS);
  }

  async #parse(
    file: FoundFile,
    text: string,
    previous: Manifest | undefined,
    signal: AbortSignal,
  ): Promise<Manifest | string | null> {
    try {
      const steps = readingOf(text, { json: isJson(file), previous });
      return await readInTurns(file.path, steps, this.#options.log, signal);
    } catch (error) {
      // Whatever the text holds, even if it is too long or too deep for the runtime: other files are not affected.
      return signal.aborted ? null : reasonOf(error);
    }
  }

  /** Puts files that have been read into force. */
  async #takeReadings(): Promise<void> {
    for (const [order, { read, done, isDone }] of this.#readings) {
      if (!isDone) continue;
      this.#readings.delete(order);
      const manifest = await done;
      if (manifest === null) continue;
      if (typeof manifest === "string") {
        this.#refuse(read, manifest);
        continue;
      }
      await inTurns(this.#setting(read.file, manifest), { turnMs: TURN_MS });
      const isBroken = manifest.problem !== undefined;
      // A broken text may be very long, and is not needed again.
      const kept = { text: undefined, manifest: this.#known.get(order)?.manifest };
      this.#known.set(order, isBroken ? { ...read, ...kept } : { ...read, manifest });
    }
  }

  /** Reports a file that cannot be read; the former content of the name stays in force. */
  #refuse(read: ReadFile, reason: string): void {
    const { file } = read;
    this.#known.set(file.order, { ...read, manifest: this.#known.get(file.order)?.manifest });
    this.#store.unreadable(file, reason);
  }

  *#setting(file: ManifestFile, manifest: Manifest): Generator<void, void> {
    const ownIps = new Set(this.#options.ownIps?.() ?? []);
    const allowed = ownIps.size === 0 ? manifest : yield* refusingOwnIps(manifest, ownIps);
    yield* this.#store.set(file, allowed);
  }

  /** True as long as an empty file that had objects is given time to be filled. */
  #isBeingWritten(file: FoundFile, known: KnownFile | undefined): boolean {
    if (known === undefined || (known.manifest?.items.length ?? 0) === 0) return false;
    const { emptySinceMs = performance.now() } = known;
    const { emptyGraceMs = 1000 } = this.#options;
    if (performance.now() - emptySinceMs >= emptyGraceMs) return false;
    this.#known.set(file.order, { ...known, file, emptySinceMs });
    return true;
  }

  async #deliver(
    handler: ResourceEventHandler,
    message: string,
    synced: readonly SourceEvent[],
  ): Promise<void> {
    const { events, rejections, foreign } = await inTurns(this.#store.checkout(), { turnMs: TURN_MS });
    if (this.#end.aborted) return;
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
  const { files } = await listFiles(classified);
  for (const file of files) {
    if (file.problem !== null) {
      store.unreadable(file, file.problem);
      continue;
    }
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
