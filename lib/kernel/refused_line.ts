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

// The machine is out of something, or the process may not do this at all: no line is to blame.
const NOBODYS_REGEXP =
  /Cannot allocate memory|Memory allocation problem|No buffer space|Out of memory|Interrupted system call|Operation not permitted|Permission denied|must be root|Resource busy|Device or resource busy|No space left|Too many open files/;
/** True if a failed run may be the fault of its lines, so that the same lines would fail again. */
export function mayBlameLines({ code, stderr }: { readonly code: number; readonly stderr: string }): boolean {
  return code >= 0 && !new ExecError([], code, stderr).isInconclusive() && !NOBODYS_REGEXP.test(stderr);
}
