/**
 * A check for programs: `{"apiVersion": "kproxy/v1", "kind": "Check"}`.
 *
 * @module
 */
import { API_VERSION } from "../../serve/status/status_document.ts";
import { type Difference, type FamilyCheck, isClean } from "./difference.ts";

/** What was compared with what, and what came of it. */
export interface CheckReport {
  /** The mode whose rules are wanted. */
  readonly mode: string;
  /** Where the objects are from, e.g. `files a.yaml`. */
  readonly desiredFrom: string;
  /** Where the rules are from, e.g. `the kernel`. */
  readonly liveFrom: string;
  readonly families: readonly FamilyCheck[];
  /** What was mended before; null: nothing was to be. */
  readonly repair: RepairReport | null;
}

/** What a repair did. */
export interface RepairReport {
  /** Families whose rules were written. */
  readonly families: readonly string[];
  /** Why it was allowed although a kproxy runs here; null: none does. */
  readonly note: string | null;
  /** Differences before it. */
  readonly before: number;
  /** Services whose rules the kernel refuses, and why. */
  readonly refused: readonly { readonly service: string; readonly problem: string }[];
}

/** How many places differ in a family. */
export function differenceCount({ base, services, leftovers }: FamilyCheck): number {
  let count = base.length + leftovers.length;
  for (const differences of services.values()) count += differences.length;
  return count;
}

/** The value whose JSON is printed. */
export function checkDocument({ mode, desiredFrom, liveFrom, families, repair }: CheckReport): unknown {
  return {
    apiVersion: API_VERSION,
    kind: "Check",
    mode,
    desired: desiredFrom,
    live: liveFrom,
    clean: families.every(isClean),
    repair,
    families: families.map((check) => ({
      family: check.family,
      read: check.isRead,
      servicesCompared: check.compared,
      differences: differenceCount(check),
      base: check.base.map(document),
      services: [...check.services].map(([name, differences]) => ({
        name,
        differences: differences.map(document),
      })),
      leftovers: check.leftovers.map(document),
      notes: check.notes,
      problems: check.problems,
    })),
  };
}

function document({ kind, place, cause, wanted, found }: Difference): unknown {
  return { kind, place, cause, wanted, found };
}
