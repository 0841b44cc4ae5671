/**
 * The end of a proxy server, which must not take long whatever is under way: the rules that are in force stay, and whatever is
 * not finished is done by the next start.
 *
 * @module
 */
import { within } from "../kernel/clock.ts";
import type { Runner } from "../kernel/runner.ts";
import type { Logger } from "../observe/log.ts";
import type { SyncObserver } from "../sync/family_runner.ts";

/** How long a sync under way may go on before its programs are ended. */
const SYNC_GRACE_MS = 1_000;
/** How long the end may take at all. */
const END_LIMIT_MS = 5_000;

/**
 * Waits for the parts to end, side by side, and at most for so long; of those that do not end in time, the log tells.
 *
 * @throws what the first of them rejects with
 */
export async function endTogether(
  parts: Readonly<Record<string, Promise<unknown>>>,
  log: Logger,
  limitMs = END_LIMIT_MS,
): Promise<void> {
  const left = new Set(Object.keys(parts));
  const ending = Promise.allSettled(
    Object.entries(parts).map(([name, part]) => part.finally(() => left.delete(name))),
  );
  const ended = await within(ending, limitMs);
  if (ended === null) log.warn("Ending without waiting any longer", { unfinished: [...left], limitMs });
  const failed = ended?.find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

/** Resolves when `work`, which uses these programs, is over; ends them after a while. */
export async function withinGrace(
  programs: Runner,
  work: Promise<unknown>,
  graceMs = SYNC_GRACE_MS,
): Promise<void> {
  const timer = setTimeout(() => programs.end(), graceMs);
  try {
    await work;
  } finally {
    clearTimeout(timer);
  }
}

/** Keeps from the observer the failures that are no more than the end of the programs. */
export function untilEnded(observer: SyncObserver, programs: Runner, log: Logger): SyncObserver {
  return {
    begun: (sync) => observer.begun?.(sync),
    synced: (outcome) => observer.synced(outcome),
    failed: (failure) => {
      if (!programs.signal.aborted) return observer.failed(failure);
      const { family, durationMs } = failure;
      const took = `${Math.round(durationMs)}ms`;
      log.info("Left a sync unfinished, the next start writes everything", { family, took });
    },
  };
}

/** Resolves when the signal is aborted. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
