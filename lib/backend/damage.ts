/**
 * What a check found that something else did to our rules.
 *
 * @module
 */
import type { Changed } from "../model/state.ts";

/** What is damaged, and how it is repaired. */
export interface Damage {
  /** Whose sync repairs it, together with what the mode remembers to write again; `"all"`: everything is to be written. */
  readonly services: Changed;
  /** What is gone or changed, in the tool's names, e.g. `nat KUBE-SERVICES`; a few of many. */
  readonly found: readonly string[];
}

/** How many damaged things a log line names. */
const NAMED = 5;

/** Of everything that is damaged; false if nothing is. */
export function damageOf(services: Changed, found: readonly string[]): false | Damage {
  if (found.length === 0) return false;
  const rest = found.length - NAMED;
  return { services, found: rest <= 0 ? found : [...found.slice(0, NAMED), `and ${rest} more`] };
}
