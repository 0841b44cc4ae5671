/**
 * Whether this runs in the user-mode Linux of `tests/lab/uml.sh`.
 *
 * @module
 */

/** True inside of a user-mode Linux. */
export function isUserModeLinux(): boolean {
  return /^model name\s*: UML$/m.test(Deno.readTextFileSync("/proc/cpuinfo"));
}
