/**
 * Kernel settings through the `sysctl` program, because the runtime keeps `/proc/sys` closed.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, runOk } from "./exec.ts";

/** How it went to make sure of a setting. `found` is the value before. */
export type SysctlOutcome =
  | { readonly kind: "unchanged"; readonly found: string }
  | { readonly kind: "changed"; readonly found: string }
  /** It has another value, and this process may not write it (read-only `/proc/sys`, missing capability). */
  | { readonly kind: "readOnly"; readonly found: string; readonly message: string }
  /** This kernel does not have it, or not yet (its module is not loaded). */
  | { readonly kind: "missing" };

/** True if there is a program to read settings with, whatever it can read. */
export async function hasSysctlProgram(exec: Exec): Promise<boolean> {
  try {
    await exec.run(["sysctl", "--version"]);
    return true;
  } catch (error) {
    if (error instanceof ExecError && error.isMissing()) return false;
    throw error;
  }
}

/**
 * The value of a setting such as `net.ipv4.ip_forward`, or null if this kernel does not have it.
 *
 * @throws {ExecError} if it cannot be read for another reason
 */
export async function readSysctl(exec: Exec, name: string): Promise<string | null> {
  try {
    return (await runOk(exec, ["sysctl", "-n", name])).trim();
  } catch (error) {
    if (error instanceof ExecError && isMissing(error)) return null;
    throw error;
  }
}

/**
 * Writes a setting unless it already has the value, so that a process without the right to write runs where an
 * earlier one has prepared the node.
 *
 * @throws {ExecError} if it cannot be read, or if the kernel refuses the value
 */
export async function ensureSysctl(exec: Exec, name: string, value: string): Promise<SysctlOutcome> {
  const found = await readSysctl(exec, name);
  if (found === null) return { kind: "missing" };
  if (found === value) return { kind: "unchanged", found };
  const argv = ["sysctl", "-w", `${name}=${value}`];
  const result = await exec.run(argv);
  const message = result.stderr.trim();
  // Some versions of the program end with 0 even though the kernel refused.
  if (result.code === 0 && message === "") return { kind: "changed", found };
  if (/Read-only file system|[Pp]ermission denied|Operation not permitted/.test(message)) {
    return { kind: "readOnly", found, message };
  }
  throw new ExecError(argv, result.code, message);
}

function isMissing(error: ExecError): boolean {
  return !error.isMissing() && /cannot stat .*No such file or directory|is an unknown key/.test(error.stderr);
}
