/**
 * Kernel settings through the `sysctl` program, because the runtime keeps `/proc/sys` closed.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, type ExecOptions, runOk } from "./exec.ts";
import { QUICK_LIMIT_MS } from "./time_limit.ts";

/** How it went to make sure of a setting. `found` is the value before. */
export type SysctlOutcome =
  | { readonly kind: "unchanged"; readonly found: string }
  | { readonly kind: "changed"; readonly found: string }
  /** It has another value, and this process may not write it (read-only `/proc/sys`, missing capability). */
  | { readonly kind: "readOnly"; readonly found: string; readonly error: ExecError }
  /** It has another value, and the kernel refuses this one, or the program could not be started. */
  | { readonly kind: "refused"; readonly found: string; readonly error: ExecError }
  /** This kernel does not have it, or not yet (its module is not loaded). */
  | { readonly kind: "missing" };

/** Nothing begins before the settings are known. */
const QUICK: ExecOptions = { timeoutMs: QUICK_LIMIT_MS };

/**
 * The value of a setting such as `net.ipv4.ip_forward`, or null if this kernel does not have it.
 *
 * @throws {ExecError} if it cannot be read for another reason
 */
export async function readSysctl(exec: Exec, name: string): Promise<string | null> {
  try {
    return (await runOk(exec, ["sysctl", "-n", name], QUICK)).trim();
  } catch (error) {
    if (error instanceof ExecError && isMissing(error)) return null;
    throw error;
  }
}

/**
 * The values of many settings by one program; null for those that this kernel does not have.
 *
 * @throws {ExecError} if one of them cannot be read for another reason
 */
export async function readSysctls(
  exec: Exec,
  names: readonly string[],
): Promise<ReadonlyMap<string, string | null>> {
  if (names.length === 0) return new Map();
  const argv = ["sysctl", ...names];
  const { code, stdout, stderr } = await exec.run(argv, QUICK);
  // The program goes on after a setting that it cannot read, and only names tell which one is missing then.
  const values = new Map(
    Array.from(stdout.matchAll(/^(\S+) = ?(.*)$/gm), ([, name = "", value = ""]) => [name, value.trim()]),
  );
  const unread = names.filter((name) => !values.has(name));
  const problems = stderr.split("\n").filter((line) => line.trim() !== "" && !MISSING_REGEXP.test(line));
  if (unread.length > 0 && (problems.length > 0 || stderr.trim() === "")) {
    throw new ExecError(argv, code, problems.join("\n"));
  }
  return new Map(names.map((name) => [name, values.get(name) ?? null]));
}

/** A setting that is to have another value than the one it was read with. */
export interface SysctlChange {
  readonly name: string;
  /** What was read before; null if this kernel does not have it. */
  readonly found: string | null;
  readonly value: string;
}

/**
 * Writes settings unless they already have the values, so that a process without the right to write runs where an earlier one has
 * prepared the node. One program writes them all if the kernel refuses none of them. The outcomes are in the order of `changes`.
 */
export async function changeSysctls(
  exec: Exec,
  changes: readonly SysctlChange[],
): Promise<readonly SysctlOutcome[]> {
  const wanted = changes.filter(({ found, value }) => found !== null && found !== value);
  const areWritten = wanted.length > 1 && await write(exec, wanted) === null;
  const outcomes: SysctlOutcome[] = [];
  for (const change of changes) {
    const { found, value } = change;
    if (found === null) outcomes.push({ kind: "missing" });
    else if (found === value) outcomes.push({ kind: "unchanged", found });
    // One by one, it is told which of them is refused, and why.
    else outcomes.push(outcomeOf(found, areWritten ? null : await write(exec, [change])));
  }
  return outcomes;
}

/** Writes settings in their order, by one program. Returns its complaint; nobody can tell then which of several are written. */
async function write(exec: Exec, changes: readonly SysctlChange[]): Promise<ExecError | null> {
  const argv = ["sysctl", "-w", ...changes.map(({ name, value }) => `${name}=${value}`)];
  try {
    const { code, stderr } = await exec.run(argv, QUICK);
    const message = stderr.trim();
    // Some versions of the program end with 0 even though the kernel refused.
    return code === 0 && message === "" ? null : new ExecError(argv, code, message);
  } catch (error) {
    if (error instanceof ExecError) return error;
    throw error;
  }
}

function outcomeOf(found: string, error: ExecError | null): SysctlOutcome {
  if (error === null) return { kind: "changed", found };
  const isReadOnly = /Read-only file system|[Pp]ermission denied|Operation not permitted/.test(error.stderr);
  return { kind: isReadOnly ? "readOnly" : "refused", found, error };
}

const MISSING_REGEXP = /cannot stat .*No such file or directory|is an unknown key/;

function isMissing(error: ExecError): boolean {
  return !error.isMissing() && MISSING_REGEXP.test(error.stderr);
}
