/**
 * SIGTERM and SIGINT: the first ends the program in order, the second at once.
 *
 * @module
 */

type SignalName = "SIGTERM" | "SIGINT";

/** Listens for the signals until disposed. */
export class StopSignals implements Disposable {
  readonly #stop = new AbortController();
  readonly #handlers: [SignalName, () => void][];
  #received = 0;

  /** @param onFirst called once, with the name of the first signal */
  constructor(onFirst: (name: SignalName) => void) {
    this.#handlers = (["SIGTERM", "SIGINT"] as const).map((name) => [name, () => this.#take(name, onFirst)]);
    for (const [name, handler] of this.#handlers) Deno.addSignalListener(name, handler);
  }

  /** Aborted by the first signal. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Resolves to null once `signal` is aborted: what is raced with it can be told from what it yields. */
  get received(): Promise<null> {
    if (this.signal.aborted) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.signal.addEventListener("abort", () => resolve(null), { once: true });
    });
  }

  [Symbol.dispose](): void {
    for (const [name, handler] of this.#handlers) Deno.removeSignalListener(name, handler);
  }

  #take(name: SignalName, onFirst: (name: SignalName) => void): void {
    this.#received++;
    if (this.#received > 1) {
      // Without our listeners the signal does what it does to any program: the shell sees 128 + its number.
      this[Symbol.dispose]();
      Deno.kill(Deno.pid, name);
      return;
    }
    onFirst(name);
    this.#stop.abort();
  }
}
