/**
 * Work for clients of the status page, in steps that do not delay the proxy.
 *
 * @module
 */
import { type Clock, systemClock } from "../../kernel/clock.ts";

/** So many requests may wait; further ones are refused. */
const MOST_WAITING = 8;

/** Too many wait already. */
export class BusyError extends Error {
  override readonly name = "BusyError";
}

/** Does one piece of work at a time, and after each rests as long as it took. */
export class Turns {
  readonly #clock: Clock;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /**
   * What the work yields, when it is its turn.
   *
   * @throws {BusyError} if too many wait
   */
  async take<Result>(work: () => Promise<Result>, stopping: AbortSignal): Promise<Result> {
    if (this.#waiting >= MOST_WAITING) throw new BusyError("too many ask at once");
    this.#waiting++;
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    const startMs = this.#clock.nowMs();
    try {
      return await work();
    } finally {
      this.#waiting--;
      this.#clock.sleep(this.#clock.nowMs() - startMs, stopping).then(resolve);
    }
  }
}
