/**
 * FIFOs in watched folders. The runtime's watcher opens what an event is about, and opening a FIFO that nobody writes to never
 * ends: no event of any folder would come any more, and no watch would end.
 *
 * @module
 */

/** As many as are held; more of them leave the watch to polling. */
const MAX_HELD = 32;

/** Keeps FIFOs open for as long as they are there, so that opening them never blocks. */
export class HeldFifos implements Disposable {
  /** By device and inode. */
  readonly #held = new Map<string, Deno.FsFile>();

  /** Holds those that are in the folders now, and lets go of all others. */
  async holdIn(folders: readonly string[]): Promise<void> {
    const found = new Set<string>();
    for (const folder of folders) {
      for (const path of await candidates(folder)) await this.#hold(path, found);
    }
    for (const [inode, file] of this.#held) {
      if (found.has(inode)) continue;
      file.close();
      this.#held.delete(inode);
    }
  }

  [Symbol.dispose](): void {
    for (const file of this.#held.values()) file.close();
    this.#held.clear();
  }

  async #hold(path: string, found: Set<string>): Promise<void> {
    try {
      const { isFifo, dev, ino } = await Deno.stat(path);
      if (isFifo !== true) return;
      const inode = `${dev}:${ino}`;
      found.add(inode);
      if (this.#held.has(inode) || this.#held.size >= MAX_HELD) return;
      // For both directions it does not block, and lets go of whoever waits for a writer.
      this.#held.set(inode, await Deno.open(path, { read: true, write: true }));
    } catch (error) {
      // Gone, a loop, or not to be opened: the folder is polled all the same.
      if (!(error instanceof Error)) throw error;
    }
  }
}

/** What is neither a file nor a folder, or may lead to something that is neither. */
async function candidates(folder: string): Promise<string[]> {
  const paths: string[] = [];
  try {
    for await (const { name, isFile, isDirectory } of Deno.readDir(folder)) {
      if (!isFile && !isDirectory) paths.push(`${folder}/${name}`);
    }
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // A folder that is gone has none.
    return [];
  }
  return paths;
}
