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
  await refuseLinkOrFolder(path);
  const folder = dirname(path);
  const temporary = join(folder, `.${basename(path)}.${crypto.randomUUID()}.tmp`);
  try {
    await replaceThrough(temporary, path, text);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // The system's error names the temporary file, which nobody has asked for and which is gone.
    const reason = error.message.replace(/: \w+ '[^]*$/, "");
    throw new Error(`Cannot write "${path}": ${reason}`);
  }
  await syncFolder(folder);
}

async function replaceThrough(temporary: string, path: string, text: string): Promise<void> {
  const file = await Deno.open(temporary, { write: true, createNew: true, mode: 0o600 });
  try {
    try {
      await writeAll(file, new TextEncoder().encode(text));
      await file.sync();
    } finally {
      file.close();
    }
    await Deno.rename(temporary, path);
  } catch (error) {
    await Deno.remove(temporary).catch((cleanup: unknown) => {
      if (!(cleanup instanceof Deno.errors.NotFound)) throw new AggregateError([error, cleanup]);
    });
    throw error;
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
  using handle = await Deno.open(folder, { read: true });
  await handle.sync();
}
