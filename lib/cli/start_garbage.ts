/**
 * What a start leaves on the heap, collected at a time of our choosing.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { SyncObserver } from "../sync/reconcile.ts";

/**
 * Collects all garbage once, when every family has had its first sync: lists, plans and texts of a whole cluster, a third of the
 * memory. The engine would do it some time later, in the middle of a change, and stop it for 0.1 s at 100,000 endpoints.
 *
 * @param collect without the engine's flag that allows it, nothing happens
 */
export function collectAfterStart(
  families: readonly IpFamily[],
  collect: () => void = (globalThis as { gc?: () => void }).gc ?? (() => {}),
): SyncObserver {
  const waiting = new Set(families);
  return {
    synced: ({ family }) => {
      if (waiting.delete(family) && waiting.size === 0) collect();
    },
    failed: () => {},
  };
}
