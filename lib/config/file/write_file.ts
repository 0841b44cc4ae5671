/**
 * Writes a file so that a reader sees the old content or the new one, never a part.
 *
 * @module
 */
import { basename, dirname, join } from "node:path";

/**
 * Replaces a file, or makes it, readable by its owner only (mode 0600).
 *
 * @throws {TypeError} if the path is a symbolic link or a folder
 * @throws {Error} naming the path, if it cannot be written
 */
export async function writeFileAtomic(path: string, text: string): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${crypto.randomUUID()}.tmp`);
  await replaceFile(path, temporary, [new TextEncoder().encode(text)]);
}

/**
 * As {@linkcode writeFileAtomic}, in pieces, with a temporary file that the caller names: in the same folder; what a former
 * writer left there is removed.
 *
 * @returns the size in bytes
 */
export async function replaceFile(
  path: string,
  temporary: string,
  pieces: Iterable<Uint8Array>,
): Promise<number> {
  await refuseLinkOrFolder(path);
  let bytes: number;
  try {
    await removeIfThere(temporary);
    bytes = await replaceThrough(temporary, path, pieces);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // The system's error names the temporary file, which the user did not name and which is gone.
    const reason = error.message.replace(/: \w+ '[^]*$/, "");
    throw new Error(`Cannot write "${path}": ${reason}`);
  }
  await syncFolder(dirname(path));
  return bytes;
}

async function replaceThrough(
  temporary: string,
  path: string,
  pieces: Iterable<Uint8Array>,
): Promise<number> {
  const file = await Deno.open(temporary, { write: true, createNew: true, mode: 0o600 });
  try {
    let bytes = 0;
    try {
      for (const piece of pieces) {
        await writeAll(file, piece);
        bytes += piece.length;
      }
      await file.sync();
    } finally {
      file.close();
    }
    await Deno.rename(temporary, path);
    return bytes;
  } catch (error) {
    await removeIfThere(temporary).catch((cleanup: unknown) => {
      throw new AggregateError([error, cleanup]);
    });
    throw error;
  }
}

async function removeIfThere(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

async function refuseLinkOrFolder(path: string): Promise<void> {
  let found: Deno.FileInfo;
  try {
    found = await Deno.lstat(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  if (found.isSymlink) throw new TypeError(`Cannot write "${path}": it is a symbolic link`);
  if (!found.isFile) throw new TypeError(`Cannot write "${path}": it is not a regular file`);
}

async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) written += await file.write(bytes.subarray(written));
}

/** Makes the rename itself survive a crash. */
async function syncFolder(folder: string): Promise<void> {
  // Windows opens no folder; its file system writes a rename to its journal by itself.
  if (Deno.build.os === "windows") return;
  using handle = await Deno.open(folder, { read: true });
  await handle.sync();
}
