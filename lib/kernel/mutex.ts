/**
 * Lets one asynchronous piece of work run at a time.
 *
 * @module
 */

/** Runs what it is given in the order of the calls, never two at once. A failure does not stop the next. */
export class Mutex {
  #tail: Promise<unknown> = Promise.resolve();

  /** Runs `work` once everything given before has ended, and settles as it does. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    // The caller gets the failure from `result`; the queue itself only waits.
    this.#tail = result.then(() => undefined, () => undefined);
    return result;
  }
}
