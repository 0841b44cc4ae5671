/**
 * Classifies failures of iptables, ipset, ipvsadm or ip: a right is missing, another program holds the lock, the
 * machine is out of something, the kernel lacks what was asked for, or a line is refused. nft says more: see `nft.ts`.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { firstLine } from "../text/lines.ts";

/** One line that was not carried out. */
export interface RefusedLine {
  /** 0-based number of the line. */
  readonly index: number;
  /** The tool's error, one line. */
  readonly problem: string;
}

/** Result of writing lines of which some are refused. */
export interface RestoreOutcome {
  readonly refused: readonly RefusedLine[];
  /** Programs started. */
  readonly runs: number;
}

/** How a program ended. */
type Ending = Pick<ExecError, "code" | "stderr">;

const NO_RIGHTS_REGEXP = /Operation not permitted|[Pp]ermission denied|must be root/;
const OUT_OF_SOMETHING_REGEXP =
  /Memory allocation problem|No buffer space|No space left|Read-only file system/;
const RESOURCE_BUSY_REGEXP = /[Rr]esource busy/;

/** True if what a program says is about the rights of the process, whatever it was asked for. */
export function isPermissionProblem(text: string): boolean {
  return NO_RIGHTS_REGEXP.test(text);
}

/**
 * True if a failed run says nothing of what was asked for: the program or the machine has a problem, or the process may not do this at
 * all.
 */
function isMachinesFault({ code, stderr }: Ending): boolean {
  return code < 0 || new ExecError([], code, stderr).isInconclusive() || isPermissionProblem(stderr) ||
    OUT_OF_SOMETHING_REGEXP.test(stderr);
}

/** True if a failed run may be the fault of its lines, so that the same lines would fail again. */
export function mayBlameLines(ending: Ending): boolean {
  return !isMachinesFault(ending) && !RESOURCE_BUSY_REGEXP.test(ending.stderr);
}

/**
 * The list of tables of iptables' legacy variant, which the kernel shows to root only: capabilities over the network do not help, and
 * to name a table instead makes it.
 */
export const LEGACY_LIST_REGEXP =
  /\/proc\/net\/ip6?_tables_names: (?:Operation not permitted|Permission denied)/;

const LOCK_STATUS = 4;
/**
 * Errors of the lock; then those of a kernel that was disturbed. All other errors with this status, such as
 * `RULE_APPEND failed (Device or resource busy)`, do not pass by waiting.
 */
const LOCK_BUSY_REGEXP = /holding the xtables lock|Resource temporarily unavailable|Interrupted system call/;

/** True if trying again may help: another program holds the lock, or the kernel was short of resources. */
export function isLockBusy({ code, stderr }: Ending): boolean {
  return code === LOCK_STATUS && LOCK_BUSY_REGEXP.test(stderr);
}

/** Whatever keeps the file from being opened does not pass by waiting. */
const NO_LOCK_FILE_REGEXP = /can't open lock file/;

/**
 * No table, no family, no protocol of this kind in the kernel: the legacy variant's words, then those of nft's, the last of
 * which is the sign of a table with rules of nft that iptables has no words for.
 */
const NOT_IN_KERNEL_REGEXP = new RegExp(
  [
    "Table does not exist",
    "do you need to insmod",
    "Module is wrong version",
    "Address family not supported",
    "Protocol not (supported|available|found)",
    "Operation not supported",
    "Function not implemented",
    "Failed to initialize nft",
    "Could not fetch rule set generation id",
    "(TABLE|CHAIN)_ADD failed \\((No such file or directory|Invalid argument)",
    "table `[^']*' is incompatible, use 'nft' tool",
  ].join("|"),
);

/** True if the kernel lacks what was asked for, or this process the right to it; false if this failure does not say. */
export function saysUnusable(error: ExecError): boolean {
  const { stderr } = error;
  return !error.isInconclusive() &&
    (isPermissionProblem(stderr) || NO_LOCK_FILE_REGEXP.test(stderr) || NOT_IN_KERNEL_REGEXP.test(stderr));
}

/** Statuses of `iptables-restore` for refused input: other problem, wrong use, kernel error. 3: trouble with a table. */
const REFUSING_STATUS: readonly number[] = [1, 2, 4];
/** Errors before any rule is looked at. */
const NO_TABLE_REGEXP = /can't initialize|Failed to initialize nft|Could not fetch rule set generation id/;

/**
 * True if a rule cannot be taken, so that it would be refused again; false if the program or the machine has a problem, another
 * program holds the lock, or that is unknown.
 *
 * @param error of `iptables-restore`, as `Iptables.restore` throws it
 */
export function isRuleRefusal(error: unknown): error is ExecError {
  if (!(error instanceof ExecError) || error.timedOutMs !== null) return false;
  // Then come the lines around the one that failed.
  const words = firstLine(error.stderr);
  const { code } = error;
  return REFUSING_STATUS.includes(code) && !isMachinesFault({ code, stderr: words }) &&
    !isLockBusy({ code, stderr: words }) && !NO_LOCK_FILE_REGEXP.test(words) && !NO_TABLE_REGEXP.test(words);
}

const CONTEXT_LINES = 3;

// `line 7 failed` (parser) · `line 7: RULE_APPEND failed (…)` (kernel, nft variant) · `Error occurred at line: 7` · `COMMIT expected at line 7`
const LINE_REGEXP = /line:? (\d+)/g;
const SHOWN_REGEXP = /^[> ] \d+: /;

/** 1-based number of the input line that failed, or null if the program does not say. */
export function failedLine(stderr: string): number | null {
  return failedLines(stderr)[0] ?? null;
}

/**
 * The numbers of all input lines that failed, as far as the program says; the kernel of the nft variant reports each.
 *
 * @param stderr of the program, or as {@linkcode describeRestoreFailure} wrote it
 */
export function failedLines(stderr: string): readonly number[] {
  const words = stderr.split("\n").filter((line) => !SHOWN_REGEXP.test(line)).join("\n");
  return Array.from(words.matchAll(LINE_REGEXP), ([, line]) => Number(line));
}

/**
 * The failure as one line, then the input lines around the one that failed, each with its number. Without a line
 * number the text of the program alone.
 */
export function describeRestoreFailure(stderr: string, input: string): string {
  const words = stderr.split("\n").map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("Try `"));
  const summary = words.join(" ");
  const line = failedLine(stderr);
  if (line === null) return summary;
  const around = linesAround(input, line);
  return around === "" ? summary : `${summary}\n${around}`;
}

/** Lines `line` − 3 to `line` + 3 of `input`, numbered, the one in question marked. */
function linesAround(input: string, line: number): string {
  const lines = input.replace(/\n$/, "").split("\n");
  const first = Math.max(1, line - CONTEXT_LINES);
  return lines.slice(first - 1, line + CONTEXT_LINES)
    .map((text, i) => `${first + i === line ? ">" : " "} ${first + i}: ${text}`)
    .join("\n");
}
