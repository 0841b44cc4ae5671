/**
 * Runs the programs of one part of kproxy: ends them with it, logs slow ones, retries, and caches, as that part asks.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import type { Logger } from "../observe/log.ts";
import { type Clock, systemClock } from "./clock.ts";
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";
import { isLockBusy } from "./tool_errors.ts";

/** Options of a {@linkcode Runner}. */
export interface RunnerOptions {
  /** Gets the name of a program that takes long. No arguments: they may be secrets. */
  readonly slowLog?: Logger;
  /**
   * Until {@linkcode Runner.settle}, a run that says nothing about the machine (`ExecError.isInconclusive`) is retried a few times
   * and then fails: what a node can do is decided once, and one program that was killed then must not decide it.
   */
  readonly retryLog?: Logger;
  /**
   * Each command without input is run once, and its result shared; one that failed is run again. Only for a short time and for
   * programs that change nothing.
   */
  readonly caches?: boolean;
  /** Clock of the waits between retries. @default {systemClock} */
  readonly clock?: Clock;
}

/** Time after which a program counts as slow: longer than almost any takes. */
const SLOW_MS = 3_000;
/** The waits between tries. */
const RETRY_WAITS_MS: readonly number[] = [200, 1_000, 3_000];
/** Timeouts after which a program is not tried again: each costs much time. */
const MAX_TIMEOUTS = 2;
/** Longest probe of a node: a list of 100,000 rules takes some 10 s, and a node may be ten times as slow. */
const PROBE_LIMIT_MS = 120_000;

/**
 * Runs programs through another `Exec` until it is ended: those under way are ended then, and no other is started. Their runs
 * reject with an `AbortError`, which is no failure of the program.
 */
export class Runner implements Exec, Disposable {
  readonly #exec: Exec;
  readonly #slowLog: Logger | undefined;
  #retryLog: Logger | undefined;
  readonly #clock: Clock;
  readonly #cache: Map<string, Promise<ExecResult>> | null;
  readonly #end = new AbortController();

  constructor(exec: Exec, options: RunnerOptions = {}) {
    this.#exec = exec;
    this.#slowLog = options.slowLog;
    this.#retryLog = options.retryLog;
    this.#clock = options.clock ?? systemClock;
    this.#cache = options.caches === true ? new Map() : null;
  }

  /** Aborted by `end`. */
  get signal(): AbortSignal {
    return this.#end.signal;
  }

  /** Ends the programs. Further calls do nothing. */
  end(): void {
    this.#end.abort(new DOMException("the program that needs it is ending", "AbortError"));
  }

  [Symbol.dispose](): void {
    this.end();
  }

  /** From now on each run is one try: syncs are retried as a whole. */
  settle(): void {
    this.#retryLog = undefined;
  }

  /** @throws {DOMException} `AbortError` once it has ended */
  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    this.signal.throwIfAborted();
    const signal = options.signal === undefined
      ? this.signal
      : AbortSignal.any([this.signal, options.signal]);
    const ending = { ...options, signal };
    const isCacheable = options.stdin === undefined && options.onStdout === undefined;
    if (this.#cache === null || !isCacheable) return await this.#runRetrying(argv, ending);
    const key = JSON.stringify([argv, options.env]);
    let result = this.#cache.get(key);
    if (result === undefined) {
      result = this.#runRetrying(argv, ending);
      this.#cache.set(key, result);
      const forget = (): void => void this.#cache?.delete(key);
      // A lock that is held now may be free the next time.
      result.then(({ code }) => code === 0 || forget(), forget);
    }
    return await result;
  }

  async #runRetrying(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
    const log = this.#retryLog;
    if (log === undefined) return await this.#runLogged(argv, options);
    const limited: ExecOptions = { timeoutMs: PROBE_LIMIT_MS, ...options };
    let timeouts = 0;
    for (const waitMs of RETRY_WAITS_MS) {
      const answer = await this.#try(argv, limited);
      if (!(answer instanceof ExecError)) return answer;
      if (answer.timedOutMs !== null && ++timeouts === MAX_TIMEOUTS) throw answer;
      log.warn("A program gave no answer, asking again", {
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

  /** The result, or the error of a run that says nothing about the machine. */
  async #try(argv: readonly string[], options: ExecOptions): Promise<ExecResult | ExecError> {
    try {
      const result = await this.#runLogged(argv, options);
      if (result.code === 0) return result;
      const error = new ExecError(argv, result.code, result.stderr);
      // The callers of iptables wait for its lock by themselves.
      return error.isInconclusive() && !isLockBusy(result) ? error : result;
    } catch (error) {
      if (error instanceof ExecError && error.isInconclusive()) return error;
      throw error;
    }
  }

  async #runLogged(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
    const log = this.#slowLog;
    if (log === undefined) return await this.#exec.run(argv, options);
    const [program] = argv;
    const startMs = performance.now();
    let isSlow = false;
    const timer = setTimeout(() => {
      isSlow = true;
      log.info("Waiting for a program", { program, seconds: SLOW_MS / 1000 });
    }, SLOW_MS);
    try {
      return await this.#exec.run(argv, options);
    } finally {
      clearTimeout(timer);
      const seconds = Math.round((performance.now() - startMs) / 100) / 10;
      if (isSlow) log.info("The program has ended", { program, seconds });
    }
  }
}
