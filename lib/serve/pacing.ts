/**
 * Answers that cost time to make, for any number of clients: they must not keep the proxy from its work.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";

const LONGEST_REST_MS = 1_000;

/** Work is refused, as too much waits already. */
export class BusyError extends Error {
  override readonly name = "BusyError";
}

/** Options of a {@linkcode Pace}. */
export interface PaceOptions {
  /** Most pieces of work that may wait or be under way; further ones are refused. @default {Infinity} */
  readonly mostWaiting?: number;
  /** Rest after each piece of work, in multiples of its duration; a second at most. @default {1} */
  readonly rest?: number;
}

/**
 * Does one piece of work at a time, and rests after each, so that everything else in the process goes on, however many clients ask. A
 * client that asks alone gets its work done at once.
 */
export class Pace {
  readonly #options: Required<PaceOptions>;
  readonly #clock: Clock;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #restUntilMs = Number.NEGATIVE_INFINITY;

  constructor({ mostWaiting = Infinity, rest = 1 }: PaceOptions = {}, clock: Clock = systemClock) {
    this.#options = { mostWaiting, rest };
    this.#clock = clock;
  }

  /**
   * Does the work in its turn, and yields its result; without rests once `stopping` aborts.
   *
   * @throws {BusyError} if too many wait
   */
  async take<Result>(work: () => Result | Promise<Result>, stopping: AbortSignal): Promise<Result> {
    const { mostWaiting, rest } = this.#options;
    if (this.#waiting >= mostWaiting) throw new BusyError("too many ask at once");
    this.#waiting++;
    const result = this.#last.then(async () => {
      const restMs = this.#restUntilMs - this.#clock.nowMs();
      if (restMs > 0) await this.#clock.sleep(restMs, stopping);
      const startMs = this.#clock.nowMs();
      try {
        return await work();
      } finally {
        this.#waiting--;
        const nowMs = this.#clock.nowMs();
        this.#restUntilMs = nowMs + Math.min(rest * (nowMs - startMs), LONGEST_REST_MS);
      }
    });
    this.#last = Promise.allSettled([result]);
    return await result;
  }
}

/**
 * A text that is made once for all clients that have asked for it since the last time. However many ask however often, making it
 * takes a fifth of the time at most.
 *
 * @returns yields a text whose making began no earlier than the call
 */
export function sharedText(
  make: () => Promise<string>,
  clock?: Clock,
): (stopping: AbortSignal) => Promise<string> {
  const pace = new Pace({ rest: 4 }, clock);
  let next: Promise<string> | null = null;
  return (stopping) =>
    next ??= pace.take(() => {
      // Later requests may follow changes that this text does not have.
      next = null;
      return make();
    }, stopping);
}

/**
 * The pieces as a body, each made when it is read: neither memory nor the event loop has to bear the whole of a large document.
 */
export function pacedBody(
  pieces: Iterator<Uint8Array<ArrayBuffer>>,
  pace: Pace,
  stopping: AbortSignal,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream({
    async pull(controller) {
      const next = await pace.take(() => pieces.next(), stopping);
      if (next.done === true) controller.close();
      else controller.enqueue(next.value);
    },
    cancel: () => void pieces.return?.(),
  }, { highWaterMark: 0 });
}
