/**
 * What two looks at the same node have found both times. Rules are not read in one moment: while they are, a running kproxy may write
 * others, and a dry run of whomever makes nft print rules twice or not at all.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { type FamilyCheck, isClean } from "./difference.ts";

/**
 * The later look without what the earlier one did not find: Services that were as they should be, and shared rules and leftovers of a
 * family that had none. What differs in a Service may be something else by now, and is told as it is by now.
 */
export function lastingChecks(
  earlier: readonly FamilyCheck[],
  later: readonly FamilyCheck[],
): readonly FamilyCheck[] {
  const before = new Map<IpFamily, FamilyCheck>(earlier.map((check) => [check.family, check]));
  return later.map((check) => {
    const first = before.get(check.family);
    // Nothing was compared then, so nothing speaks against what was found now.
    if (first === undefined || !first.isRead) return check;
    return {
      ...check,
      base: first.base.length > 0 ? check.base : [],
      services: new Map([...check.services].filter(([service]) => first.services.has(service))),
      leftovers: first.leftovers.length > 0 ? check.leftovers : [],
    };
  });
}

/** True if a second look may find less: something differs that was compared. */
export function mayPass(checks: readonly FamilyCheck[]): boolean {
  return checks.some((check) => check.isRead && !isClean(check));
}
