/**
 * A limit on silence: a connection that died without a word is noticed by nothing arriving on it.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";

/** Aborts its signal when nothing was noted for a time, or together with the signal it was given. */
export class IdleLimit implements Disposable {
  readonly #idleMs: number;
  readonly #from: string;
  readonly #outer: AbortSignal;
  readonly #clock: Clock;
  readonly #controller = new AbortController();
  readonly #counting = new AbortController();
  readonly #follow = (): void => this.#controller.abort(this.#outer.reason);
  #heardMs: number;
  #error: Error | undefined;

  /** `from` names who is silent, for the error. */
  constructor(idleMs: number, from: string, outer: AbortSignal, clock: Clock = systemClock) {
    this.#idleMs = idleMs;
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
    while (!signal.aborted && !this.#controller.signal.aborted) {
      const leftMs = this.#heardMs + this.#idleMs - this.#clock.nowMs();
      if (leftMs <= 0) {
        this.#error = new Error(`Nothing arrived from ${this.#from} for ${this.#idleMs / 1000} s`);
        this.#controller.abort(this.#error);
        return;
      }
      await this.#clock.sleep(leftMs, signal);
    }
  }
}
