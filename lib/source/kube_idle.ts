/**
 * A limit on silence: a connection that died without a word is noticed by nothing arriving on it.
 *
 * @module
 */

/** Aborts its signal when nothing was noted for a time, or together with the signal it was given. */
export class IdleLimit implements Disposable {
  readonly #idleMs: number;
  readonly #from: string;
  readonly #outer: AbortSignal;
  readonly #controller = new AbortController();
  readonly #follow = (): void => this.#controller.abort(this.#outer.reason);
  readonly #expire = (): void => {
    this.#error = new Error(`Nothing arrived from ${this.#from} for ${this.#idleMs / 1000} s`);
    this.#controller.abort(this.#error);
  };
  #timer: ReturnType<typeof setTimeout>;
  #error: Error | undefined;

  /** `from` names who is silent, for the error. */
  constructor(idleMs: number, from: string, outer: AbortSignal) {
    this.#idleMs = idleMs;
    this.#from = from;
    this.#outer = outer;
    if (outer.aborted) this.#follow();
    else outer.addEventListener("abort", this.#follow, { once: true });
    this.#timer = setTimeout(this.#expire, idleMs);
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
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#expire, this.#idleMs);
  };

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#outer.removeEventListener("abort", this.#follow);
    // What is left of an answer nobody reads any more goes with its connection.
    this.#controller.abort();
  }
}
