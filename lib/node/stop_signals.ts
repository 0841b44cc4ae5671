/**
 * The signals of an operator: SIGTERM and SIGINT end the program, the first one in order, the second one at once; SIGHUP has the
 * configuration file read again, or ends it.
 *
 * @module
 */

export type StopSignal = "SIGTERM" | "SIGINT" | "SIGHUP";

export interface SignalHandlers {
  /** Called once, with the name of the first signal that ends the program. */
  readonly onStop: (name: StopSignal) => void;
  /** Called for each SIGHUP; without it, that ends the program, too. */
  readonly onHangUp?: () => void;
}

/**
 * Listens for the signals from its making to the end of the program: one that comes while the program ends, or before it has begun,
 * must not make its end look like a failure.
 */
export class StopSignals {
  readonly #stop = new AbortController();
  readonly #again = Promise.withResolvers<null>();
  readonly #received: StopSignal[] = [];
  #handlers: SignalHandlers | null = null;

  constructor() {
    for (const name of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(name, () => this.#end(name));
    Deno.addSignalListener("SIGHUP", () => this.#hangUp());
  }

  /** Sets the handlers; signals that have come already are handled now. */
  handle(handlers: SignalHandlers): void {
    this.#handlers = handlers;
    const [first] = this.#received;
    if (first !== undefined) handlers.onStop(first);
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Resolves to null once `signal` is aborted: so a race shows which came first. */
  get received(): Promise<null> {
    if (this.signal.aborted) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.signal.addEventListener("abort", () => resolve(null), { once: true });
    });
  }

  /** Resolves to null with the second signal: nothing is waited for any more. */
  get again(): Promise<null> {
    return this.#again.promise;
  }

  #hangUp(): void {
    if (this.#handlers?.onHangUp === undefined) this.#end("SIGHUP");
    else if (!this.signal.aborted) this.#handlers.onHangUp();
  }

  #end(name: StopSignal): void {
    this.#received.push(name);
    if (this.#received.length > 1) return this.#again.resolve(null);
    this.#handlers?.onStop(name);
    this.#stop.abort();
  }
}
