/**
 * A log that keeps its lines for tests.
 *
 * @module
 */
import { createLogger, type ProgramLogger } from "../../lib/observe/log.ts";

/** A log and its lines, e.g. `W "Cannot read" file="/s"`: severity letter, then the text after klog's header. */
export function recordingLog(verbosity = 0): { readonly log: ProgramLogger; readonly lines: string[] } {
  const lines: string[] = [];
  const write = (line: string): void => {
    lines.push(`${line[0]} ${line.slice(line.indexOf("]") + 2).trimEnd()}`);
  };
  return { log: createLogger({ format: "text", verbosity, write, nowMs: () => 0, pid: 1 }), lines };
}
