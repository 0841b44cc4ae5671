/**
 * Watches folders for changes of their files.
 *
 * @module
 */
import { within } from "../../kernel/clock.ts";
import type { Logger } from "../../observe/log.ts";

/** Options of a {@linkcode FolderWatch}. */
export interface FolderWatchOptions {
  readonly folders: readonly string[];
  /** After an event, waits until none has come for so long. */
  readonly debounceMs: number;
  /** Longest wait for an event: network file systems and exhausted inotify limits send none. */
  readonly pollMs: number;
  readonly log: Logger;
}

/** How long to wait for a watch to end, which a FIFO without reader or writer may delay. */
const END_LIMIT_MS = 1_000;
/** Poll interval while the runtime's watches do not answer. */
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
  /** Folders whose failed watch was logged; it is tried again at every refresh. */
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

  /** Closes the watches, and waits until a new watch of the same folders would not join them any more. */
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
        reason: "a FIFO came and went in a watched folder",
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
      // Opening and closing change nothing, and kproxy's own reads must not count; writes are events of their own.
      if (event.kind === "access") continue;
      for (const path of event.paths) this.touch(path.slice(path.lastIndexOf("/") + 1));
    }
  }
}

/** The folder that a file is in. */
export function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "." : path.slice(0, slash) || "/";
}

/** Resolves when the watchers have ended, or after a limit. */
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

/** Most FIFOs that are held open; with more of them, folders are polled. */
const MAX_HELD = 32;

/** Keeps FIFOs open for as long as they are there, so that opening them never blocks. */
class HeldFifos implements Disposable {
  /** Open FIFOs by device and inode. */
  readonly #held = new Map<string, Deno.FsFile>();

  /** Opens the FIFOs that are in the folders now, and closes all others. */
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
      // For both directions it does not block, and releases a reader that waits for a writer.
      this.#held.set(inode, await Deno.open(path, { read: true, write: true }));
    } catch (error) {
      // Gone, a loop, or not to be opened: the folder is polled all the same.
      if (!(error instanceof Error)) throw error;
    }
  }
}

/** Entries of a folder that may be FIFOs: neither file nor folder, or a link. */
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

/** Limit for an answer of the watch thread, which takes a millisecond; waited for twice, as the machine may be busy. */
const ANSWER_LIMIT_MS = 700;

/** The one pulse of the program: its watches have one thread. */
let shared: Pulse | null = null;

/** A watch on a file that has no name, which cannot be replaced by a FIFO. */
interface Pulse {
  readonly file: Deno.FsFile;
  readonly watcher: Deno.FsWatcher;
  readonly ended: Promise<void>;
  users: number;
  /** Resolves with the next event. */
  beat: PromiseWithResolvers<true>;
  asking: Promise<boolean> | null;
}

/** A user's share in the pulse. Without a place for temporary files there is none, and watches count as answering. */
class WatchPulse implements AsyncDisposable {
  #isUser = false;

  /** Resolves to whether watches may be opened and closed. Begins the pulse, if that is not done. */
  async answers(): Promise<boolean> {
    if (!this.#isUser) {
      this.#isUser = true;
      shared ??= begin();
      if (shared !== null) shared.users++;
    }
    return shared === null || await ask(shared);
  }

  /** Ends the pulse with its last user, unless its own watch would never close. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isUser) return;
    this.#isUser = false;
    const pulse = shared;
    if (pulse === null || --pulse.users > 0 || !await ask(pulse) || pulse.users > 0) return;
    shared = null;
    pulse.watcher.close();
    await pulse.ended;
    pulse.file.close();
  }
}

function begin(): Pulse | null {
  try {
    const path = Deno.makeTempFileSync({ prefix: "kproxy-watch-" });
    const file = Deno.openSync(path, { write: true });
    // Nothing else has a watch, so that its thread has nothing to wait for.
    const watcher = Deno.watchFs(path, { recursive: false });
    Deno.removeSync(path);
    const pulse: Pulse = {
      file,
      watcher,
      ended: Promise.resolve(),
      users: 0,
      beat: Promise.withResolvers(),
      asking: null,
    };
    return Object.assign(pulse, { ended: follow(pulse) });
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return null;
  }
}

async function follow(pulse: Pulse): Promise<void> {
  for await (const _ of pulse.watcher) {
    pulse.beat.resolve(true);
    pulse.beat = Promise.withResolvers();
  }
}

function ask(pulse: Pulse): Promise<boolean> {
  pulse.asking ??= beats(pulse).finally(() => pulse.asking = null);
  return pulse.asking;
}

async function beats(pulse: Pulse): Promise<boolean> {
  const { promise } = pulse.beat;
  const now = new Date();
  await pulse.file.utime(now, now);
  return await within(promise, ANSWER_LIMIT_MS) ?? await within(promise, ANSWER_LIMIT_MS) ?? false;
}
