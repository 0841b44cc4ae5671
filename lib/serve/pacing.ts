/**
 * Answers that cost time to make, for any number of clients: they must not keep the proxy from its work.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";

/** How many times as long as it took to make the text nothing is made after it. */
const REST = 4;
const LONGEST_REST_MS = 1_000;

/**
 * Makes a text for all clients that have asked for it since it was made last. However many ask however often, making it takes a fifth
 * of the time at most; a client that asks alone has it made at once.
 */
export class SharedText {
  readonly #make: () => Promise<string>;
  readonly #clock: Clock;
  #next: Promise<string> | null = null;
  #last: Promise<unknown> = Promise.resolve();
  #restUntilMs = Number.NEGATIVE_INFINITY;

  constructor(make: () => Promise<string>, clock: Clock = systemClock) {
    this.#make = make;
    this.#clock = clock;
  }

  /** A text that was not begun before now; sooner than otherwise when `stopping` aborts. */
  next(stopping: AbortSignal): Promise<string> {
    return this.#next ??= this.#makeNext(stopping);
  }

  async #makeNext(stopping: AbortSignal): Promise<string> {
    await this.#last;
    await this.#clock.sleep(Math.max(0, this.#restUntilMs - this.#clock.nowMs()), stopping);
    // Later requests may follow changes that this text does not have.
    this.#next = null;
    const startMs = this.#clock.nowMs();
    const text = this.#make();
    this.#last = text.then(() => this.#rest(startMs), () => this.#rest(startMs));
    return await text;
  }

  #rest(startMs: number): void {
    const nowMs = this.#clock.nowMs();
    this.#restUntilMs = nowMs + Math.min(REST * (nowMs - startMs), LONGEST_REST_MS);
  }
}

/** Too many wait already. */
export class BusyError extends Error {
  override readonly name = "BusyError";
}

/**
 * Does one piece of work at a time, and after each rests as long as it took, so that everything else in the process goes on, however
 * many clients ask.
 */
export class Pace {
  readonly #mostWaiting: number;
  readonly #clock: Clock;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** @param mostWaiting so many pieces of work may wait or be under way; further ones are refused */
  constructor(mostWaiting: number = Infinity, clock: Clock = systemClock) {
    this.#mostWaiting = mostWaiting;
    this.#clock = clock;
  }

  /**
   * What the work yields, when it is its turn.
   *
   * @throws {BusyError} if too many wait
   */
  async take<Result>(work: () => Result | Promise<Result>, stopping: AbortSignal): Promise<Result> {
    if (this.#waiting >= this.#mostWaiting) throw new BusyError("too many ask at once");
    this.#waiting++;
    let tookMs = 0;
    const result = this.#last.then(async () => {
      const startMs = this.#clock.nowMs();
      try {
        return await work();
      } finally {
        this.#waiting--;
        tookMs = this.#clock.nowMs() - startMs;
      }
    });
    const rest = (): Promise<void> => this.#clock.sleep(tookMs, stopping);
    this.#last = result.then(rest, rest);
    return await result;
  }
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
