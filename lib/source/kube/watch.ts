/**
 * A watch that outlives the silence of its connection: a server may have nothing to say for any time, and a connection may die
 * without a word. Both look the same, so a silent watch is opened once more while the old one is still listened to.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";
import type { WatchBatch } from "./serializers.ts";
import { AnswerError, ExpiredError } from "./list_watch_messages.ts";

/** What {@linkcode watchedBatches} needs. */
export interface WatchOptions {
  /**
   * Opens a watch from the newest version that was taken; resolves to its batches of events once the server has
   * accepted it. `signal` ends the request as well as the events.
   *
   * @throws {Error} if the server does not accept it
   */
  readonly open: (signal: AbortSignal) => Promise<AsyncGenerator<WatchBatch>>;
  /** How long the watch may be silent this time, in milliseconds. */
  readonly silenceMs: () => number;
  /** Called when a silent watch could not be renewed; resolves when that should be tried again, or `signal` aborts. */
  readonly renewalFailed: (error: unknown, signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
}

/** A watch that the server had accepted broke off. */
export class CutOffError extends Error {
  constructor(cause: unknown) {
    super("The watch was cut off", { cause });
    this.name = "CutOffError";
  }
}

/**
 * Yields the events of a watch, each once and in order, until the server ends it.
 *
 * @throws {CutOffError} if it breaks off
 * @throws {ExpiredError} if the server says at a renewal that the version is gone
 * @throws {Error} if the watch is refused, at first or in place of one that is over
 * @throws what `signal` was aborted with
 */
export async function* watchedBatches(
  options: WatchOptions,
  signal: AbortSignal,
): AsyncGenerator<WatchBatch> {
  let watch = new WatchConnection(options.open, signal);
  try {
    await watch.accepted();
    for (;;) {
      if (await isSilent(watch, options)) {
        signal.throwIfAborted();
        watch = await renewed(watch, options, signal);
        continue;
      }
      const batch = await watch.take();
      if (batch === null) return;
      yield batch;
    }
  } finally {
    watch.close();
  }
}

/** One watch, from its request on, and what of it has not been taken yet. */
class WatchConnection {
  readonly #outer: AbortSignal;
  readonly #end = new AbortController();
  readonly #follow = (): void => this.#end.abort(this.#outer.reason);
  readonly #opening: Promise<AsyncGenerator<WatchBatch>>;
  #next: Promise<WatchBatch | null> | undefined;
  #state: "waiting" | "spoken" | "over" = "waiting";

  constructor(open: WatchOptions["open"], outer: AbortSignal) {
    this.#outer = outer;
    // The handler of a list may end everything while it is delivered, just before the watch.
    if (outer.aborted) this.#follow();
    else outer.addEventListener("abort", this.#follow, { once: true });
    this.#opening = open(this.#end.signal);
  }

  /** `spoken` while there are events to take; `over` once it has been refused, has ended or is broken. */
  get state(): "waiting" | "spoken" | "over" {
    return this.#state;
  }

  /** @throws {Error} if the server does not accept it */
  async accepted(): Promise<void> {
    await this.#opening;
  }

  /** Resolves once there are events to take, or it is over: to its state. */
  async settled(): Promise<"waiting" | "spoken" | "over"> {
    this.#next ??= this.#read();
    try {
      this.#state = await this.#next === null ? "over" : "spoken";
    } catch {
      // Thrown to the reader of the events; a watch that was replaced before has none.
      this.#state = "over";
    }
    return this.#state;
  }

  /** The next events; null at the end. */
  async take(): Promise<WatchBatch | null> {
    const next = this.#next ??= this.#read();
    this.#next = undefined;
    this.#state = "waiting";
    try {
      return await next;
    } catch (error) {
      this.#outer.throwIfAborted();
      throw error instanceof AnswerError ? error : new CutOffError(error);
    }
  }

  /** Leaves the connection. */
  close(): void {
    this.#outer.removeEventListener("abort", this.#follow);
    this.#end.abort();
  }

  async #read(): Promise<WatchBatch | null> {
    const { done, value } = await (await this.#opening).next();
    return done === true ? null : value;
  }
}

/** Resolves to true if nothing comes for too long, to false if there is something to take. */
async function isSilent(watch: WatchConnection, { silenceMs, clock }: WatchOptions): Promise<boolean> {
  const heard = new AbortController();
  const silence = clock.sleep(silenceMs(), heard.signal).then(() => true);
  try {
    return await Promise.race([watch.settled().then(() => false), silence]);
  } finally {
    heard.abort();
  }
}

/**
 * Opens a silent watch once more, until that succeeds or the old one speaks after all: a server that takes no new watches now
 * may well keep those it has.
 *
 * @returns the one to listen to; the other one is closed
 */
async function renewed(
  old: WatchConnection,
  options: WatchOptions,
  signal: AbortSignal,
): Promise<WatchConnection> {
  for (;;) {
    const other = new WatchConnection(options.open, signal);
    const accepted = other.accepted().then(() => null, (error: unknown) => ({ error }));
    // One that is over by now does not speak: it has been replaced just in time, if the other one is accepted.
    const spoken = async () => await old.settled() === "spoken" ? "spoken" as const : await accepted;
    const outcome = await Promise.race([accepted, spoken()]);
    if (outcome === null) {
      old.close();
      return other;
    }
    other.close();
    await accepted;
    signal.throwIfAborted();
    // What the old one says is taken from it alone: the new one would bring it a second time.
    if (outcome === "spoken") return old;
    if (outcome.error instanceof ExpiredError || old.state === "over") throw outcome.error;
    await untilRetry(outcome.error, old, options, signal);
    if (old.state !== "waiting") return old;
  }
}

async function untilRetry(
  error: unknown,
  old: WatchConnection,
  { renewalFailed }: WatchOptions,
  signal: AbortSignal,
): Promise<void> {
  const settled = new AbortController();
  const wait = renewalFailed(error, AbortSignal.any([signal, settled.signal]));
  await Promise.race([wait, old.settled()]);
  settled.abort();
  await wait;
  signal.throwIfAborted();
}
