/**
 * What a start leaves on the heap, collected at a time of our choosing.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";
import { collectGarbage } from "../kernel/garbage.ts";
import type { IpFamily } from "../model/objects.ts";
import { observeFirstSyncs } from "../sync/first_syncs.ts";
import type { SyncObserver } from "../sync/reconcile.ts";

/** By then the first syncs have let go of what they worked with. */
const AFTER_MS = 1_000;

/**
 * Collects all garbage once, a second after every family has had its first sync: lists, plans and texts of a whole cluster.
 * The larger that is, the longer it takes, and the engine would do it some time later, in the middle of a change.
 *
 * @param signal keeps it from being done later on
 */
export function collectAfterStart(
  families: readonly IpFamily[],
  signal: AbortSignal,
  clock: Clock = systemClock,
  collect: () => void = collectGarbage,
): SyncObserver {
  return observeFirstSyncs(families, (_family, isLast) => {
    if (!isLast) return;
    void clock.sleep(AFTER_MS, signal).then(() => {
      if (!signal.aborted) collect();
    });
  });
}
