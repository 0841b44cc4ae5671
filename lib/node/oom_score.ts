/**
 * The OOM score of the process, set once it has something to protect: a start has no time for it.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { type Exec, QUICK_LIMIT_MS, runOk } from "../kernel/exec.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { observeFirstSyncs } from "../sync/sync_observer.ts";
import type { SyncObserver } from "../sync/family_runner.ts";

/** However long the first syncs take, or the source does not answer, it is set by then. */
const LATEST_MS = 10_000;

export interface OomScoreOptions {
  /** From -1000 (never end it) to 1000; null leaves it as it is. Programs that the process starts inherit it. */
  readonly adjustment: number | null;
  readonly pid: number;
  /** The IP families whose first syncs come first. */
  readonly families: readonly IpFamily[];
  readonly exec: Exec;
  readonly log: Logger;
  readonly clock?: Clock;
}

/** Under way. */
export interface LateOomScore {
  readonly observer: SyncObserver;
  /** Resolves when the score is set, could not be, or is left as it is. */
  readonly settled: Promise<void>;
}

/** Sets the adjustment after the first sync of every family, or after ten seconds; not after `until` aborts. */
export function setOomScoreLate(
  { adjustment, pid, families, exec, log, clock = systemClock }: OomScoreOptions,
  until: AbortSignal,
): LateOomScore {
  const due = new AbortController();
  const observer = observeFirstSyncs(families, (_family, isLast) => isLast && due.abort());
  const set = async (): Promise<void> => {
    if (adjustment === null) return;
    await clock.sleep(LATEST_MS, AbortSignal.any([due.signal, until]));
    if (until.aborted) return;
    try {
      const argv = ["choom", "-n", String(adjustment), "-p", String(pid)];
      await runOk(exec, argv, { timeoutMs: QUICK_LIMIT_MS, signal: until });
    } catch (error) {
      if (until.aborted) return;
      if (!(error instanceof ExecError)) throw error;
      // Needs a right that few grant; a node works without it, so that a refusal is a detail.
      log.info("OOM score stays as it is", { wanted: adjustment, problem: error.message }, 2);
    }
  };
  return { observer, settled: set() };
}
