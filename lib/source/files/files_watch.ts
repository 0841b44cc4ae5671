/**
 * Says when something in some folders may have changed.
 *
 * @module
 */
import { within } from "../../kernel/clock.ts";
import type { Logger } from "../../observe/log.ts";
import { HeldFifos } from "./files_fifos.ts";
import { WatchPulse } from "./files_pulse.ts";

/** What is watched and how patiently. */
export interface FolderWatchOptions {
  readonly folders: readonly string[];
  /** After an event, waits until none has come for so long. */
  readonly debounceMs: number;
  /** Looks again after so long even without an event: network file systems and exhausted inotify limits send none. */
  readonly pollMs: number;
  readonly log: Logger;
}

/** How long to wait for a watch to end, which a FIFO that nobody holds may keep from it. */
const END_LIMIT_MS = 1_000;
/** How often is looked where no watch answers. */
const UNWATCHED_POLL_MS = 1_000;
/** A storm of events delays the answer by at most so many debounce times. */
const MAX_DEBOUNCES = 10;

interface WatchedFolder {
  /** Device and inode: a folder that was replaced needs a new watch. */
  readonly identity: string;
  readonly watcher: Deno.FsWatcher;
  /** Resolves once the watcher is closed and its last event was taken. */
  readonly ended: Promise<void>;
}

/**
 * Watches folders, never files: a watch on a file dies when the file is replaced, be it by a rename or by a ConfigMap's
 * `..data` link. Call {@linkcode FolderWatch.refresh} before each look at the folders, so that nothing is missed.
 *
 * Once the runtime's watches do not answer any more, none is opened or closed: the folders are polled, and what is open stays so to
 * the end of the program.
 */
export class FolderWatch implements AsyncDisposable {
  readonly #options: FolderWatchOptions;
  readonly #watched = new Map<string, WatchedFolder>();
  readonly #fifos = new HeldFifos();
  readonly #pulse = new WatchPulse();
  #answers = true;
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();
  /** Folders whose trouble was said; it is tried again at every refresh. */
  readonly #warned = new Set<string>();
  #changed = new Set<string>();
  #wake: PromiseWithResolvers<void> = Promise.withResolvers();

  constructor(options: FolderWatchOptions) {
    this.#options = options;
  }

  /** (Re)opens the watches of folders that are new or were replaced. */
  async refresh(): Promise<void> {
    await this.#fifos.holdIn(this.#options.folders);
    if (!await this.#doAnswer()) return;
    for (const folder of this.#options.folders) {
      const identity = await identityOfFolder(folder);
      const watched = this.#watched.get(folder);
      if (watched?.identity === identity) continue;
      this.#watched.delete(folder);
      watched?.watcher.close();
      // Deno has one inotify instance for all watches: until the old one has ended, a new one of the same path joins it.
      if (watched !== undefined) await endOf([watched]);
      if (identity !== undefined) this.#open(folder, identity);
    }
  }

  /**
   * Resolves when something changed or the poll is due, to the base names of the files that changed (none for a poll);
   * to null once `signal` aborts.
   */
  async next(signal: AbortSignal): Promise<ReadonlySet<string> | null> {
    const { debounceMs } = this.#options;
    const pollMs = this.#answers ? this.#options.pollMs : Math.min(this.#options.pollMs, UNWATCHED_POLL_MS);
    if (await this.#eventWithin(pollMs, signal)) {
      for (let rounds = 0; rounds < MAX_DEBOUNCES; rounds++) {
        this.#wake = Promise.withResolvers();
        if (!await this.#eventWithin(debounceMs, signal)) break;
      }
    }
    const changed = this.#changed;
    this.#changed = new Set();
    this.#wake = Promise.withResolvers();
    return signal.aborted ? null : changed;
  }

  /** Makes the next call of {@linkcode FolderWatch.next} answer soon, with `name` among the changed. */
  touch(name: string): void {
    this.#changed.add(name);
    this.#wake.resolve();
  }

  /** Makes {@linkcode FolderWatch.next} answer after so long at the latest. */
  wakeAfter(delayMs: number): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#wake.resolve();
    }, delayMs);
    this.#timers.add(timer);
  }

  /** Waits until a new watch of the same folders would not join these any more. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await this.#fifos.holdIn(this.#options.folders);
    if (await this.#doAnswer()) {
      const watched = [...this.#watched.values()];
      for (const { watcher } of watched) watcher.close();
      await endOf(watched);
    }
    this.#watched.clear();
    this.#fifos[Symbol.dispose]();
    await this.#pulse[Symbol.asyncDispose]();
  }

  async #doAnswer(): Promise<boolean> {
    const answers = await this.#pulse.answers();
    const { folders, pollMs, log } = this.#options;
    if (this.#answers && !answers) {
      log.warn("Watches of folders do not answer any more, polling instead", {
        folders,
        pollMs: Math.min(pollMs, UNWATCHED_POLL_MS),
        reason: "a FIFO came and went in one of them",
      });
    }
    if (!this.#answers && answers) log.info("Watches of folders answer again", { folders });
    this.#answers = answers;
    return answers;
  }

  async #eventWithin(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    return await within(this.#wake.promise.then(() => true), timeoutMs, signal) ?? false;
  }

  #open(folder: string, identity: string): void {
    try {
      const watcher = Deno.watchFs(folder, { recursive: false });
      const ended = this.#follow(watcher).catch((error) => this.#warn(folder, error));
      this.#watched.set(folder, { identity, watcher, ended });
      this.#warned.delete(folder);
    } catch (error) {
      this.#warn(folder, error);
    }
  }

  #warn(folder: string, error: unknown): void {
    if (this.#warned.has(folder)) return;
    this.#warned.add(folder);
    this.#options.log.error("Cannot watch folder, polling it instead", error, {
      folder,
      pollMs: this.#options.pollMs,
    });
  }

  async #follow(watcher: Deno.FsWatcher): Promise<void> {
    for await (const event of watcher) {
      // Opening and closing change nothing, and our own reading must not be answered; writes are told by themselves.
      if (event.kind === "access") continue;
      for (const path of event.paths) this.touch(path.slice(path.lastIndexOf("/") + 1));
    }
  }
}

/** Resolves when they have ended, or will not. */
async function endOf(watched: readonly WatchedFolder[]): Promise<void> {
  await within(Promise.all(watched.map(({ ended }) => ended)), END_LIMIT_MS);
}

async function identityOfFolder(folder: string): Promise<string | undefined> {
  try {
    const { dev, ino, isDirectory } = await Deno.stat(folder);
    return isDirectory ? `${dev}:${ino}` : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
