/**
 * A limit on silence: a connection that died without a word is noticed by nothing arriving on it.
 *
 * @module
 */
import { type Clock, systemClock } from "../../kernel/clock.ts";

/** Times of an {@linkcode IdleLimit}, in milliseconds; looked up whenever one of them has passed. */
export interface IdleTimes {
  /** Without a sign for so long it is over. */
  readonly idleMs: number;
  /** After so long it is over, whatever arrived: who sends a byte now and then must not keep us for ever. */
  readonly wholeMs: number;
}

/** Aborts its signal when nothing was noted for a time, or together with the signal it was given. */
export class IdleLimit implements Disposable {
  readonly #times: IdleTimes;
  readonly #from: string;
  readonly #outer: AbortSignal;
  readonly #clock: Clock;
  readonly #controller = new AbortController();
  readonly #counting = new AbortController();
  readonly #follow = (): void => this.#controller.abort(this.#outer.reason);
  #heardMs: number;
  #error: Error | undefined;

  /** `from` names who is silent, for the error; a single time is the limit of silence, and there is no other one. */
  constructor(times: number | IdleTimes, from: string, outer: AbortSignal, clock: Clock = systemClock) {
    this.#times = typeof times === "number" ? { idleMs: times, wholeMs: Infinity } : times;
    this.#from = from;
    this.#outer = outer;
    this.#clock = clock;
    this.#heardMs = clock.nowMs();
    if (outer.aborted) this.#follow();
    else outer.addEventListener("abort", this.#follow, { once: true });
    void this.#expire();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the signal was aborted, if that was for silence: what a cut-off request throws may not say so. */
  get error(): Error | undefined {
    return this.#error;
  }

  /** Something arrived. */
  readonly note = (): void => {
    this.#heardMs = this.#clock.nowMs();
  };

  /** From now on silence is allowed; the signal goes on following the one it was given. */
  lift(): void {
    this.#counting.abort();
  }

  [Symbol.dispose](): void {
    this.#counting.abort();
    this.#outer.removeEventListener("abort", this.#follow);
    // What is left of an answer nobody reads any more goes with its connection.
    this.#controller.abort();
  }

  /** One wait from sign to sign: a timer for each piece of a long answer would cost more than the piece. */
  async #expire(): Promise<void> {
    const { signal } = this.#counting;
    const startMs = this.#clock.nowMs();
    while (!signal.aborted && !this.#controller.signal.aborted) {
      const { idleMs, wholeMs } = this.#times;
      const nowMs = this.#clock.nowMs();
      const leftMs = Math.min(this.#heardMs + idleMs, startMs + wholeMs) - nowMs;
      if (leftMs <= 0) return this.#end(nowMs - startMs >= wholeMs);
      await this.#clock.sleep(leftMs, signal);
    }
  }

  #end(isTooSlow: boolean): void {
    const { idleMs, wholeMs } = this.#times;
    this.#error = new Error(
      isTooSlow
        ? `What arrives from ${this.#from} is not complete after ${wholeMs / 1000} s`
        : `Nothing arrived from ${this.#from} for ${idleMs / 1000} s`,
    );
    this.#controller.abort(this.#error);
  }
}
