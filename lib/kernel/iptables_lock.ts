/**
 * Tells a held xtables lock from the other things that iptables ends with status 4 for.
 *
 * @module
 */

const LOCK_STATUS = 4;

/**
 * The lock's words; then those of a kernel in whose way something was. All other things that iptables ends so for, such as
 * `RULE_APPEND failed (Device or resource busy)`, do not pass by waiting.
 */
const BUSY_REGEXP = /holding the xtables lock|Resource temporarily unavailable|Interrupted system call/;

/** True if trying again may help: another program holds the lock, or the kernel was short of resources. */
export function isLockBusy({ code, stderr }: { readonly code: number; readonly stderr: string }): boolean {
  return code === LOCK_STATUS && BUSY_REGEXP.test(stderr);
}
