/**
 * What a tool that reads lines says of one that it refuses while it takes the others.
 *
 * @module
 */

import { ExecError } from "../errors.ts";

/** One line that was not carried out. */
export interface RefusedLine {
  /** 0-based number of the line. */
  readonly index: number;
  /** In the tool's words, one line. */
  readonly problem: string;
}

/** How lines went in of which some are refused. */
export interface RestoreOutcome {
  readonly refused: readonly RefusedLine[];
  /** Programs started. */
  readonly runs: number;
}

/** How a program ended. */
type Ending = Pick<ExecError, "code" | "stderr">;

// The machine is out of something, or the process may not do this at all: no line is to blame.
const MACHINES_REGEXP =
  /Memory allocation problem|No buffer space|Operation not permitted|Permission denied|must be root|No space left|Read-only file system/;
const BUSY_REGEXP = /[Rr]esource busy/;

/** True if a failed run says nothing of what was asked for: the program or the machine has a problem. */
export function isMachinesFault({ code, stderr }: Ending): boolean {
  return code < 0 || new ExecError([], code, stderr).isInconclusive() || MACHINES_REGEXP.test(stderr);
}

/** True if a failed run may be the fault of its lines, so that the same lines would fail again. */
export function mayBlameLines(ending: Ending): boolean {
  return !isMachinesFault(ending) && !BUSY_REGEXP.test(ending.stderr);
}
