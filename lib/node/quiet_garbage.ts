/**
 * Garbage that a start and changes leave on the heap, collected when nothing waits for it.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";
import type { IpFamily } from "../model/objects.ts";
import type { SyncObserver } from "../sync/family_runner.ts";

/** Time after the start by which the first syncs have released their memory. */
const AFTER_START_MS = 1_000;
/** Time without changes after which a series of them is over: longer than syncs are delayed by default. */
const QUIET_MS = 3_000;
/** Rest after a collection, as a multiple of its duration: a thousandth of the time, and rarer with a large heap. */
const REST_PER_PAUSE = 1_000;
/** Least and longest rest: on a busy machine even a small collection takes long. */
const MIN_REST_MS = 10_000;
const MAX_REST_MS = 300_000;

/**
 * Collects all garbage once, a second after every family has had its first sync: lists, plans and texts of a whole cluster. After that
 * it does so once no family has had a sync for three seconds, if there was one: changes leave some megabytes, most of them room that
 * the engine made for short-lived objects. The engine would collect some time later, in the middle of a change, and keep that room.
 *
 * Nothing is collected while a sync is under way or to be tried again, and nothing for a thousand times as long as it took the last time.
 *
 * @param signal keeps it from being done later on
 */
export function collectInQuiet(
  families: readonly IpFamily[],
  signal: AbortSignal,
  clock: Clock = systemClock,
  collect: () => void = collectGarbage,
): SyncObserver {
  const unsynced = new Set(families);
  /** Families whose latest sync has not succeeded. */
  const busy = new Set<IpFamily>();
  let quiet = new AbortController();
  let hasStarted = false;
  let restUntilMs = 0;
  const collectAfter = async (ms: number, until: AbortSignal): Promise<void> => {
    await clock.sleep(ms, until);
    if (until.aborted) return;
    hasStarted = true;
    const startMs = clock.nowMs();
    collect();
    const endMs = clock.nowMs();
    restUntilMs = endMs + Math.min(Math.max(MIN_REST_MS, REST_PER_PAUSE * (endMs - startMs)), MAX_REST_MS);
  };
  return {
    begun: ({ family }) => {
      busy.add(family);
      quiet.abort();
    },
    synced: ({ family }) => {
      busy.delete(family);
      if (unsynced.delete(family) && unsynced.size === 0) void collectAfter(AFTER_START_MS, signal);
      quiet.abort();
      if (!hasStarted || busy.size > 0) return;
      quiet = new AbortController();
      const quietMs = Math.max(QUIET_MS, restUntilMs - clock.nowMs());
      void collectAfter(quietMs, AbortSignal.any([signal, quiet.signal]));
    },
    // What is still unwritten comes with the next sync.
    failed: () => {},
  };
}

interface EngineGlobals {
  /** Exists with the engine's flag `--expose-gc`. */
  readonly gc?: (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;
}

/** Gives back all memory of this thread that nothing needs; without the flag that allows it, nothing happens. */
function collectGarbage(): void {
  (globalThis as EngineGlobals).gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
}
