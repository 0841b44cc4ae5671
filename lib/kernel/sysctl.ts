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
  const { code, stdout, stderr } = await exec.run(argv);
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

/**
 * Writes a setting unless it already has the value, so that a process without the right to write runs where an
 * earlier one has prepared the node.
 *
 * @param change.found what was read before
 * @throws {ExecError} if the kernel refuses the value
 */
export async function changeSysctl(
  exec: Exec,
  name: string,
  { found, value }: { readonly found: string | null; readonly value: string },
): Promise<SysctlOutcome> {
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

/**
 * Writes settings in their order, by one program.
 *
 * @returns false if the kernel refused some of them, or the program did not start; nobody can tell which of them are written then
 */
export async function writeSysctls(
  exec: Exec,
  changes: readonly { readonly name: string; readonly value: string }[],
): Promise<boolean> {
  try {
    const { code, stderr } = await exec.run([
      "sysctl",
      "-w",
      ...changes.map(({ name, value }) => `${name}=${value}`),
    ]);
    // Some versions of the program end with 0 even though the kernel refused.
    return code === 0 && stderr.trim() === "";
  } catch (error) {
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** A setting that is to have another value than the one it was read with. */
export interface SysctlChange {
  readonly name: string;
  readonly found: string | null;
  readonly value: string;
}

/**
 * Many settings as by {@linkcode changeSysctl}, by one program if the kernel refuses none of them; in the order of `changes`.
 *
 * @throws {ExecError} if the kernel refuses a value
 */
export async function changeSysctls(
  exec: Exec,
  changes: readonly SysctlChange[],
): Promise<readonly SysctlOutcome[]> {
  const wanted = changes.filter(({ found, value }) => found !== null && found !== value);
  const areWritten = wanted.length > 1 && await writeSysctls(exec, wanted);
  const outcomes: SysctlOutcome[] = [];
  for (const change of changes) {
    const { name, found } = change;
    // One by one, it is told which of them is refused, and why.
    outcomes.push(
      areWritten && found !== null && wanted.includes(change)
        ? { kind: "changed", found }
        : await changeSysctl(exec, name, change),
    );
  }
  return outcomes;
}

const MISSING_REGEXP = /cannot stat .*No such file or directory|is an unknown key/;

function isMissing(error: ExecError): boolean {
  return !error.isMissing() && MISSING_REGEXP.test(error.stderr);
}
