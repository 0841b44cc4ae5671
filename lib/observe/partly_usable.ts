/**
 * Tells of objects of which only a part can be used: once, though every IP family looks at each of them, and at each of its events.
 *
 * @module
 */
import type { Logger } from "./log.ts";

/** Problems that are remembered; the one that was met longest ago is forgotten first. */
const REMEMBERED = 1_000;

/** A reporter that logs each problem as a warning once, as long as it remembers it. */
export function partlyUsableReport(log: Logger, remembered: number = REMEMBERED): (problem: string) => void {
  const told = new Set<string>();
  return (problem) => {
    const isKnown = told.delete(problem);
    told.add(problem);
    if (isKnown) return;
    for (const oldest of told) {
      if (told.size <= remembered) break;
      told.delete(oldest);
    }
    log.warn("Object is only partly usable", { problem });
  };
}
