/**
 * Says which program kproxy waits for, so that one that hangs never holds up a start, or rules, in silence.
 *
 * @module
 */
import type { Logger } from "../observe/log.ts";
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/** Longer than almost any takes. */
const SLOW_MS = 3_000;

/** Runs programs through another `Exec`, and logs those that take long: their names, as arguments may be secrets. */
export class TellingExec implements Exec {
  readonly #exec: Exec;
  readonly #log: Logger;

  constructor(exec: Exec, log: Logger) {
    this.#exec = exec;
    this.#log = log;
  }

  async run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    const startMs = performance.now();
    let isSlow = false;
    const timer = setTimeout(() => {
      isSlow = true;
      this.#log.info("Waiting for a program", { program: argv[0], seconds: SLOW_MS / 1000 });
    }, SLOW_MS);
    try {
      return await this.#exec.run(argv, options);
    } finally {
      clearTimeout(timer);
      if (isSlow) {
        const seconds = Math.round((performance.now() - startMs) / 100) / 10;
        this.#log.info("The program has ended", { program: argv[0], seconds });
      }
    }
  }
}
