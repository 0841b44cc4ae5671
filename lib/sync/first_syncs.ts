/**
 * What is done once a family's rules, or those of all families, are in force.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { SyncObserver } from "./reconcile.ts";

/**
 * Tells of the first sync of each of the families.
 *
 * @param onFirst called once for each of them; with `isLast` if all others have had theirs
 */
export function observeFirstSyncs(
  families: readonly IpFamily[],
  onFirst: (family: IpFamily, isLast: boolean) => void,
): SyncObserver {
  const waiting = new Set(families);
  return {
    synced: ({ family }) => {
      if (waiting.delete(family)) onFirst(family, waiting.size === 0);
    },
    failed: () => {},
  };
}
