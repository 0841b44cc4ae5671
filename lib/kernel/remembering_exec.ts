/**
 * Asks every question once: several probes of a node start the same programs to look at the same things.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/**
 * Runs each command without input once and answers with the same result from then on; one that failed is run again. Only for a
 * short time and for programs that change nothing.
 */
export class RememberingExec implements Exec {
  readonly #exec: Exec;
  readonly #results = new Map<string, ExecResult>();

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    if (options.stdin !== undefined) return await this.#exec.run(argv, options);
    const key = JSON.stringify([argv, options.env]);
    const known = this.#results.get(key);
    if (known !== undefined) return known;
    const result = await this.#exec.run(argv, options);
    // A lock that is held now may be free the next time.
    if (result.code === 0) this.#results.set(key, result);
    return result;
  }
}
