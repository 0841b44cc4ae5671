/**
 * Whether the runtime's watches still answer. They share one thread, which opens what an event is about; a FIFO that nobody writes
 * to keeps it there, for ever if the FIFO is gone by then. No event of any folder comes any more, and whoever opens or closes a
 * watch waits for that thread with all of the program: no signal, no timer, no change gets through.
 *
 * @module
 */
import { within } from "../../kernel/clock.ts";

/** A thread that answers does so within a millisecond; on a machine that has no time for it, twice as long is waited. */
const ANSWER_LIMIT_MS = 700;

/** Of the program: its watches have one thread. */
let shared: Pulse | null = null;

/** A watch on a file that has no name, of which nobody can make a FIFO. */
interface Pulse {
  readonly file: Deno.FsFile;
  readonly watcher: Deno.FsWatcher;
  readonly ended: Promise<void>;
  users: number;
  /** Resolves with the next event. */
  beat: PromiseWithResolvers<true>;
  asking: Promise<boolean> | null;
}

/** What those hold that have watches. Without a place for temporary files there is no pulse, and watches count as answering. */
export class WatchPulse implements AsyncDisposable {
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
