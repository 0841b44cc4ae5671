/**
 * Asks the machine every question once, also where several readers ask at the same time.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "../../kernel/exec.ts";

/** Runs each command without input once; whoever asks the same meanwhile or later gets the same answer. One that failed is run again. */
export class SharingExec implements Exec {
  readonly #exec: Exec;
  readonly #runs = new Map<string, Promise<ExecResult>>();

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    if (options.stdin !== undefined || options.onStdout !== undefined) return this.#exec.run(argv, options);
    const key = JSON.stringify([argv, options.env]);
    let run = this.#runs.get(key);
    if (run === undefined) {
      run = this.#exec.run(argv, options);
      this.#runs.set(key, run);
      const forget = (): void => void this.#runs.delete(key);
      // A lock that is held now may be free the next time.
      run.then(({ code }) => code === 0 || forget(), forget);
    }
    return run;
  }
}
