/**
 * What iptables says where it can never work, as long as the node is what it is, and where it refuses rules.
 *
 * @module
 */
import { firstLine } from "../text/lines.ts";
import { ExecError } from "../errors.ts";
import { isLockBusy } from "./iptables_lock.ts";
import { isMachinesFault } from "./refused_line.ts";

const PERMISSION_REGEXP = /[Pp]ermission denied|Operation not permitted|you must be root/;

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

/** True if what iptables says is about the rights of the process, whatever it was asked for. */
export function isPermissionProblem(text: string): boolean {
  return PERMISSION_REGEXP.test(text);
}

/** True if the kernel lacks what was asked for, or this process the right to it; false if this failure does not say. */
export function saysUnusable(error: ExecError): boolean {
  const { stderr } = error;
  return !error.isInconclusive() &&
    (isPermissionProblem(stderr) || NO_LOCK_FILE_REGEXP.test(stderr) || NOT_IN_KERNEL_REGEXP.test(stderr));
}

/** With these it ends where it does not take what it reads: something else, wrong use, the kernel's word. 3 is its own trouble with a table. */
const REFUSING_STATUS: readonly number[] = [1, 2, 4];
/** What fails before any rule is looked at. */
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
