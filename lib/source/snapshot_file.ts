/**
 * Snapshots on disk.
 *
 * @module
 */
import { basename, dirname, join } from "node:path";
import { replaceFile } from "../config/write_file.ts";
import type { ApiObject } from "../model/objects.ts";
import {
  type Snapshot,
  SnapshotError,
  type SnapshotHeader,
  type SnapshotOwner,
  snapshotPieces,
  SnapshotReader,
} from "./snapshot_text.ts";

const READ_BYTES = 64 * 1024;

/**
 * Reads a snapshot, yielding to the loop after every piece.
 *
 * @throws {SnapshotError} if it cannot serve; its message says why and continues "the file …"
 * @returns undefined if there is no such file
 */
export async function readSnapshot(path: string, owner: SnapshotOwner): Promise<Snapshot | undefined> {
  try {
    // Before it is opened: a pipe would not open until somebody writes into it.
    if (!(await Deno.stat(path)).isFile) throw new SnapshotError("is not a regular file");
    using file = await Deno.open(path);
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
 * Replaces a snapshot: whoever reads finds the former one or this one. Yields to the loop after every piece.
 *
 * @returns the size in bytes
 * @throws {Error} naming the path, if it cannot be written
 */
export async function writeSnapshot(
  path: string,
  header: SnapshotHeader,
  objects: readonly ApiObject[],
): Promise<number> {
  // Always the same name, so that one that was left behind by a crash does not stay.
  const temporary = join(dirname(path), `.${basename(path)}.tmp`);
  return await replaceFile(path, temporary, snapshotPieces(header, objects));
}
