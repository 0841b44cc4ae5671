/**
 * Plans of changes: the changed Services and those that a change of theirs affects.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import type { ProxyState } from "../../../model/state.ts";
import type { CommittedTable } from "./committed.ts";
import { planNftables } from "../plan/plan.ts";
import type { NftablesOptions, NftablesPlan } from "../plan/ruleset.ts";

/**
 * The plan of the changed Services, as `diffNftables` wants it: with those that get a destination of one of them, or
 * have to give theirs to one.
 *
 * @param excluded Services that are planned as though they were gone
 * @throws {RangeError} if an option does not fit its family
 */
export function planChange(
  state: ProxyState,
  changed: ReadonlySet<NamespacedName>,
  options: NftablesOptions,
  committed: CommittedTable,
  excluded?: ReadonlySet<NamespacedName>,
): NftablesPlan {
  const plan = planNftables(state, changed, options, excluded);
  const affected = committed.affectedBy(plan);
  return affected.size === 0
    ? plan
    : planNftables(state, new Set([...changed, ...affected]), options, excluded);
}
