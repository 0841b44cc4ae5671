/**
 * The OOM score of the process, set once it has something to protect: a start has no time for it.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { Runner } from "../kernel/runner.ts";
import { type Exec, QUICK_LIMIT_MS, runOk } from "../kernel/exec.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { observeFirstSyncs } from "../sync/sync_observer.ts";
import type { SyncObserver } from "../sync/family_runner.ts";

/** However long the first syncs take, or the source does not answer, it is set by then. */
const LATEST_MS = 10_000;

export interface OomScoreOptions {
  /** From -1000 (never end it) to 1000; null leaves it as it is. */
  readonly adjustment: number | null;
  readonly pid: number;
  /** The IP families whose first syncs come first. */
  readonly families: readonly IpFamily[];
  readonly exec: Exec;
  readonly log: Logger;
  readonly clock?: Clock;
}

/** Sets the adjustment after the first sync of every family, or after ten seconds. */
export class LateOomScore {
  readonly observer: SyncObserver;
  readonly #options: OomScoreOptions;
  readonly #programs: Runner;
  readonly #due = new AbortController();
  readonly #work: Promise<void>;

  constructor(options: OomScoreOptions) {
    this.#options = options;
    this.observer = observeFirstSyncs(options.families, (_family, isLast) => {
      if (isLast) this.#due.abort();
    });
    this.#programs = new Runner(options.exec);
    this.#work = this.#setWhenDue();
  }

  /** What is not set by now stays as it is. */
  end(): void {
    this.#programs.end();
  }

  /** Resolves when it is set, could not be, or has ended. */
  settled(): Promise<void> {
    return this.#work;
  }

  async #setWhenDue(): Promise<void> {
    const { adjustment, pid, log, clock = systemClock } = this.#options;
    const programs = this.#programs;
    if (adjustment === null) return;
    await clock.sleep(LATEST_MS, AbortSignal.any([this.#due.signal, programs.signal]));
    if (programs.signal.aborted) return;
    try {
      await setOomScoreAdjustment(programs, pid, adjustment);
    } catch (error) {
      if (programs.signal.aborted) return;
      if (!(error instanceof ExecError)) throw error;
      // Needs a right that few grant; a node works without, so a refusal is told to those who ask for details only.
      log.info("OOM score stays as it is", { wanted: adjustment, problem: error.message }, 2);
    }
  }
}

/**
 * Sets the adjustment of a process, from -1000 (never end it) to 1000. The programs it starts inherit it.
 *
 * @throws {ExecError} without the program, or without CAP_SYS_RESOURCE for a value below the present one
 */
async function setOomScoreAdjustment(exec: Exec, pid: number, adjustment: number): Promise<void> {
  await runOk(exec, ["choom", "-n", String(adjustment), "-p", String(pid)], {
    timeoutMs: QUICK_LIMIT_MS,
  });
}
