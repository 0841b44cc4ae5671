/**
 * Asks again where a program gave no answer: what a node can do is decided once, when it is prepared, and one program that was
 * killed then must not decide it.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import { type Clock, systemClock } from "./clock.ts";
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";
import { isLockBusy } from "./iptables_lock.ts";

/** The waits between tries. */
const WAITS_MS: readonly number[] = [200, 1_000, 3_000];
/** One that hung once has cost much time already, and so would each try. */
const MAX_TIMEOUTS = 2;
/** Nothing that looks at a node takes longer: a list of 100,000 rules takes some 10 s, and a node may be ten times as slow. */
const LOOK_LIMIT_MS = 120_000;

/**
 * Runs programs through another `Exec`. Until {@linkcode PersistentExec.rest}, a run that says nothing about the machine (see
 * `ExecError.isInconclusive`) is tried again a few times, and then fails: no status of such a run is ever seen.
 */
export class PersistentExec implements Exec {
  readonly #exec: Exec;
  readonly #log: Logger;
  readonly #clock: Clock;
  #rests = false;

  constructor(exec: Exec, log: Logger, clock: Clock = systemClock) {
    this.#exec = exec;
    this.#log = log;
    this.#clock = clock;
  }

  /** From now on each run is one try: those who sync try again themselves. */
  rest(): void {
    this.#rests = true;
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    if (this.#rests) return await this.#exec.run(argv, options);
    const limited: ExecOptions = { timeoutMs: LOOK_LIMIT_MS, ...options };
    let timeouts = 0;
    for (const waitMs of WAITS_MS) {
      const answer = await this.#try(argv, limited);
      if (!(answer instanceof ExecError)) return answer;
      if (answer.timedOutMs !== null && ++timeouts === MAX_TIMEOUTS) throw answer;
      this.#log.warn("A program gave no answer, asking again", {
        program: argv[0],
        problem: answer.message,
        after: `${waitMs}ms`,
      });
      await this.#clock.sleep(waitMs, options.signal);
    }
    const last = await this.#try(argv, limited);
    if (last instanceof ExecError) throw last;
    return last;
  }

  /** What the program said, or why it said nothing. */
  async #try(argv: readonly string[], options: ExecOptions): Promise<ExecResult | ExecError> {
    try {
      const result = await this.#exec.run(argv, options);
      if (result.code === 0) return result;
      const error = new ExecError(argv, result.code, result.stderr);
      // Those who run iptables know how to wait for its lock.
      return error.isInconclusive() && !isLockBusy(result) ? error : result;
    } catch (error) {
      if (error instanceof ExecError && error.isInconclusive()) return error;
      throw error;
    }
  }
}
