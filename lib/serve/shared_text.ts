/**
 * A page that costs time to make, for any number of clients.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";

/** How many times as long as it took to make the text nothing is made after it. */
const REST = 4;
const LONGEST_REST_MS = 1_000;

/**
 * Makes a text for everybody who has asked for it since it was made last. However many ask however often, making it takes a fifth of
 * the time at most; who asks alone has it made at once.
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
