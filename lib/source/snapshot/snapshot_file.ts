/**
 * Snapshots on disk.
 *
 * @module
 */
import { basename, dirname, join } from "node:path";
import { replaceFile } from "../../config/file/write_file.ts";
import type { ApiObject } from "../../model/objects.ts";
import {
  type Snapshot,
  SnapshotError,
  type SnapshotHeader,
  type SnapshotOwner,
  snapshotPieces,
  SnapshotReader,
} from "./snapshot_format.ts";
import type { Clock } from "../../kernel/clock.ts";
import { othersMayWrite } from "../../kernel/file_owner.ts";
import type { Logger } from "../../observe/log.ts";

const READ_BYTES = 64 * 1024;

/** Opens a regular file that others may not write, checked again once it is open. */
async function openOwn(path: string): Promise<Deno.FsFile> {
  // Before it is opened: opening a pipe waits for its writer.
  refuseProblem(await Deno.lstat(path));
  const file = await Deno.open(path);
  try {
    refuseProblem(await file.stat());
    return file;
  } catch (error) {
    file.close();
    throw error;
  }
}

function refuseProblem(file: Deno.FileInfo): void {
  // A user who can write a snapshot decides where this node's traffic goes.
  const problem = file.isSymlink
    ? "is a symbolic link"
    : file.isFile
    ? othersMayWrite(file)
    : "is not a regular file";
  if (problem !== null) throw new SnapshotError(problem);
}

/**
 * Reads a snapshot, yielding to the loop after every piece.
 *
 * @throws {SnapshotError} if it cannot serve; its message says why and continues "the file …"
 * @returns undefined if there is no such file
 */
export async function readSnapshot(path: string, owner: SnapshotOwner): Promise<Snapshot | undefined> {
  try {
    using file = await openOwn(path);
    const reader = new SnapshotReader(owner, path);
    const buffer = new Uint8Array(READ_BYTES);
    for (let length = await file.read(buffer); length !== null; length = await file.read(buffer)) {
      reader.take(buffer.subarray(0, length));
    }
    return reader.end();
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) return undefined;
    if (cause instanceof SnapshotError || !(cause instanceof Error)) throw cause;
    throw new SnapshotError(`cannot be read: ${cause.message}`, { cause });
  }
}

/**
 * Replaces a snapshot: a reader finds the former one or this one. Yields to the loop after every piece.
 *
 * @returns the size in bytes
 * @throws {Error} naming the path, if it cannot be written
 */
export async function writeSnapshot(
  path: string,
  header: SnapshotHeader,
  objects: readonly ApiObject[],
): Promise<number> {
  // Always the same name, so that a file that was left behind by a crash does not stay.
  const temporary = join(dirname(path), `.${basename(path)}.tmp`);
  return await replaceFile(path, temporary, snapshotPieces(header, objects));
}

/** Dependencies of a {@linkcode SnapshotSaver}. */
export interface SnapshotSaverOptions {
  /** For the log. */
  readonly path: string;
  /** Writes the present objects. @returns the size in bytes */
  readonly save: () => Promise<number>;
  /** Called after every failure. */
  readonly onFailure: () => void;
  readonly log: Logger;
  readonly clock: Clock;
  /** Least time between two writes, and from a change to its write, in milliseconds. @default {10000} */
  readonly intervalMs?: number;
}

const INTERVAL_MS = 10_000;
/** A node of a large, busy cluster must not wear out its disk: 16 MiB are written about once a minute. */
const BYTES_PER_SECOND = 256 * 1024;

/** Writes changes to the snapshot, not too often. A write that failed is tried again after the same time. */
export class SnapshotSaver {
  readonly #options: SnapshotSaverOptions;
  #isDue = false;
  #wake: () => void = () => {};
  #pauseMs: number;
  #hasFailed = false;

  constructor(options: SnapshotSaverOptions) {
    this.#options = options;
    this.#pauseMs = options.intervalMs ?? INTERVAL_MS;
  }

  /** Notes that the objects changed, and must be written. */
  changed(): void {
    this.#isDue = true;
    this.#wake();
  }

  /** Writes snapshots until `signal` aborts, then once more if a change is left, and resolves. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (!this.#isDue) await this.#untilDue(signal);
      await this.#options.clock.sleep(this.#pauseMs, signal);
      if (this.#isDue) await this.#save();
    }
    if (this.#isDue) await this.#save();
  }

  #untilDue(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        signal.removeEventListener("abort", this.#wake);
        resolve();
      };
      signal.addEventListener("abort", this.#wake, { once: true });
      if (signal.aborted) this.#wake();
    });
  }

  async #save(): Promise<void> {
    const { save, log, path, intervalMs = INTERVAL_MS, clock } = this.#options;
    // Reset before the await: changes meanwhile may be missing in the file.
    this.#isDue = false;
    const startMs = clock.nowMs();
    try {
      const bytes = await save();
      this.#pauseMs = Math.max(intervalMs, bytes / BYTES_PER_SECOND * 1000);
      const took = `${(clock.nowMs() - startMs).toFixed(1)}ms`;
      log.info("Snapshot written", { file: path, bytes, took }, this.#hasFailed ? 0 : 2);
      this.#hasFailed = false;
    } catch (error) {
      this.#isDue = true;
      this.#options.onFailure();
      const reason = error instanceof Error ? error.message : String(error);
      if (this.#hasFailed) log.info("Still cannot write the snapshot", { file: path, reason }, 2);
      else log.warn("Cannot write the snapshot, going on without", { file: path, reason });
      this.#hasFailed = true;
    }
  }
}
