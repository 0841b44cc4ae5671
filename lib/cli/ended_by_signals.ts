/**
 * Ends the work of a command in order, where a signal would end the program at once.
 *
 * @module
 */

/** What is aborted by the first of these signals, until it is disposed of. */
export class EndedBySignals implements Disposable {
  readonly #end = new AbortController();
  readonly #names: readonly Deno.Signal[];
  readonly #stop: () => void;

  /** @param reason of the abortion. @default {an AbortError} */
  constructor(names: readonly Deno.Signal[] = ["SIGINT", "SIGTERM", "SIGHUP"], reason?: Error) {
    // Of these Windows has only the first.
    this.#names = Deno.build.os === "windows" ? names.filter((name) => name === "SIGINT") : names;
    this.#stop = () => this.#end.abort(reason);
    for (const name of this.#names) Deno.addSignalListener(name, this.#stop);
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  [Symbol.dispose](): void {
    for (const name of this.#names) Deno.removeSignalListener(name, this.#stop);
  }
}
