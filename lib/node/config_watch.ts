/**
 * Notices that the content of the configuration file is another one.
 *
 * @module
 */
import { errorText, type Logger } from "../observe/log.ts";
import type { ConfigFile } from "../config/file/load.ts";
import { FolderWatch } from "../source/files/files_watch.ts";

/** What a {@linkcode ConfigWatch} needs. */
export interface ConfigWatchOptions {
  /** As it was read last. */
  readonly file: ConfigFile;
  readonly log: Logger;
  /** How long the folder must be quiet before the file is read. @default {300} */
  readonly debounceMs?: number;
  /** The file is read this often even if nothing tells of a change: a link may lead to another folder. @default {5000} */
  readonly pollMs?: number;
}

/**
 * Watches the file's folder, so that edits, renames into place and a ConfigMap's `..data` link are all seen, and compares bytes,
 * so that nothing else is.
 */
export class ConfigWatch implements AsyncDisposable {
  readonly #options: ConfigWatchOptions;
  readonly #watch: FolderWatch;
  #bytes: Uint8Array;
  #problem = "";
  #hasLooked = false;
  /** Somebody has asked, and wants to know what came of it. */
  #isAsked = false;

  constructor(options: ConfigWatchOptions) {
    const { file, log, debounceMs = 300, pollMs = 5_000 } = options;
    this.#options = options;
    this.#bytes = file.bytes;
    this.#watch = new FolderWatch({ folders: [folderOf(file.path)], debounceMs, pollMs, log });
  }

  /**
   * Resolves to the file with other content than before, to null once `signal` aborts. A file that is gone, cannot be read or
   * is none (a pipe) is no other content.
   */
  async next(signal: AbortSignal): Promise<ConfigFile | null> {
    for (;;) {
      // What was written before the watch began is only seen by looking.
      if (this.#hasLooked && await this.#watch.next(signal) === null) return null;
      this.#hasLooked = true;
      const bytes = await this.#read();
      if (signal.aborted) {
        // What this look found is for the next call.
        this.#hasLooked = false;
        return null;
      }
      const isAsked = this.#isAsked;
      this.#isAsked = false;
      if (bytes === null || sameBytes(bytes, this.#bytes)) {
        if (isAsked && bytes !== null) this.#sayUnchanged();
        continue;
      }
      this.#bytes = bytes;
      return { path: this.#options.file.path, bytes };
    }
  }

  /** Has the file read soon, whatever the folder tells; the log says if it is as it was. */
  look(): void {
    this.#isAsked = true;
    this.#watch.touch(this.#options.file.path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#watch[Symbol.asyncDispose]();
  }

  #sayUnchanged(): void {
    const { file, log } = this.#options;
    log.info("Configuration file has not changed", { file: file.path });
  }

  async #read(): Promise<Uint8Array | null> {
    const { file: { path }, log } = this.#options;
    try {
      await this.#watch.refresh();
      // Reading a pipe would wait for a writer.
      const { isFile } = await Deno.stat(path);
      const bytes = isFile ? await Deno.readFile(path) : null;
      this.#problem = "";
      return bytes;
    } catch (error) {
      const problem = errorText(error);
      if (problem !== this.#problem) {
        log.warn("Configuration file cannot be read, the configuration in force stays", {
          file: path,
          problem,
        });
      }
      this.#problem = problem;
      return null;
    }
  }
}

function folderOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "." : path.slice(0, slash) || "/";
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
