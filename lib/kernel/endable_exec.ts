/**
 * Programs that can be ended together, because what started them ends.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/**
 * Runs programs through another `Exec` until it is told to end: those under way are ended then, and no other is started.
 * Their runs reject with an `AbortError`, which is no failure of the program.
 */
export class EndableExec implements Exec, Disposable {
  readonly #exec: Exec;
  readonly #end = new AbortController();

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Aborted by `end`. */
  get signal(): AbortSignal {
    return this.#end.signal;
  }

  /** @throws {DOMException} `AbortError` once it has ended */
  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    this.signal.throwIfAborted();
    const signal = options.signal === undefined
      ? this.signal
      : AbortSignal.any([this.signal, options.signal]);
    return await this.#exec.run(argv, { ...options, signal });
  }

  /** Ends it. Further calls do nothing. */
  end(): void {
    this.#end.abort(new DOMException("the program that needs it is ending", "AbortError"));
  }

  [Symbol.dispose](): void {
    this.end();
  }
}
