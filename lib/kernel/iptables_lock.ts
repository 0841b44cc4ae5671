/**
 * Tells a held xtables lock from the other things that iptables ends with status 4 for.
 *
 * @module
 */

const LOCK_STATUS = 4;

// iptables-nft's word for what the kernel refused, which does not pass by waiting.
const FAILED_OPERATION_REGEXP = /(?:CHAIN|RULE|TABLE)_[A-Z_]+ failed \((?!Resource temporarily|Interrupted)/;
// Nor does a lock file that cannot be made or opened, or a missing privilege.
const REFUSED_REGEXP = /can't open lock file|Permission denied|you must be root/;

/** True if trying again may help: another program holds the lock, or the kernel was short of resources. */
export function isLockBusy(code: number, stderr: string): boolean {
  return code === LOCK_STATUS && !FAILED_OPERATION_REGEXP.test(stderr) && !REFUSED_REGEXP.test(stderr);
}
