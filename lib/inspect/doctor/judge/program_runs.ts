/**
 * Judges programs that hang, are killed, or print what is none of their outputs: a start would meet them, too.
 *
 * @module
 */
import { failure, type Finding } from "../finding.ts";
import type { ProgramTrouble } from "../program_runs.ts";

const CHECK = "programs";

const MENDS: Readonly<Record<ProgramTrouble["kind"], (program: string) => string>> = {
  hangs: (program) =>
    `see what it waits for: ps -C ${program} -o pid,stat,wchan:30,args; docs/operations.md, "Programs that hang"`,
  killed: (program) =>
    `see who ended it: dmesg tells of the kernel's memory killer; then try ${program} by hand`,
  garbage: (program) => `see which program it is: command -v ${program}; then install the real one`,
};

/** One line for each program and kind of trouble. */
export function judgeProgramRuns(troubles: readonly ProgramTrouble[]): readonly Finding[] {
  return troubles.map(({ program, kind, words }) =>
    failure(CHECK, `${WHAT[kind](program)}: ${words}`, MENDS[kind](program))
  );
}

const WHAT: Readonly<Record<ProgramTrouble["kind"], (program: string) => string>> = {
  hangs: (program) => `${program} does not end`,
  killed: (program) => `${program} does not come to its end`,
  garbage: (program) => `${program} prints what is none of its outputs`,
};
