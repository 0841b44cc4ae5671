/**
 * Kernel settings through the `sysctl` program, because the runtime keeps `/proc/sys` closed.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, type ExecOptions, type ExecResult, runOk } from "./exec.ts";
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
 * @throws {ExecError} if a setting cannot be read for another reason
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
 * prepared the node. One program writes them all; those of which it does not tell how that went are written once more, each by its own.
 * The outcomes are in the order of `changes`.
 */
export async function changeSysctls(
  exec: Exec,
  changes: readonly SysctlChange[],
): Promise<readonly SysctlOutcome[]> {
  const wanted = changes.filter(({ found, value }) => found !== null && found !== value);
  const told = wanted.length > 1 ? await writeTogether(exec, wanted) : new Map<string, ExecError | null>();
  const outcomes: SysctlOutcome[] = [];
  for (const change of changes) {
    const { name, found, value } = change;
    if (found === null) outcomes.push({ kind: "missing" });
    else if (found === value) outcomes.push({ kind: "unchanged", found });
    else {
      const problem = told.get(name);
      outcomes.push(outcomeOf(found, problem === undefined ? await writeAlone(exec, change) : problem));
    }
  }
  return outcomes;
}

/** The error of each setting, null for one that is written; without those whose outcome is unknown. */
async function writeTogether(
  exec: Exec,
  changes: readonly SysctlChange[],
): Promise<ReadonlyMap<string, ExecError | null>> {
  const result = await write(exec, changes);
  const told = new Map<string, ExecError | null>();
  if (result instanceof ExecError) return told;
  const { code, stdout, stderr } = result;
  const isSilent = stderr.trim() === "";
  if (code === 0 && isSilent) return new Map(changes.map(({ name }) => [name, null]));
  const complaints = stderr.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const isAbout = (line: string, { name }: SysctlChange): boolean => line.includes(`"${name}"`);
  const isClear = !isSilent &&
    complaints.every((line) => changes.some((change) => isAbout(line, change)));
  for (const change of isClear ? changes : []) {
    const own = complaints.filter((line) => isAbout(line, change));
    // What is written is printed.
    if (own.length > 0) told.set(change.name, new ExecError(writeArgv([change]), code, own.join("\n")));
    else if (stdout.split("\n").some((line) => line.startsWith(`${change.name} = `))) {
      told.set(change.name, null);
    }
  }
  return told;
}

/** The program's complaint; null if the setting is written. */
async function writeAlone(exec: Exec, change: SysctlChange): Promise<ExecError | null> {
  const result = await write(exec, [change]);
  if (result instanceof ExecError) return result;
  const message = result.stderr.trim();
  // Some versions of the program end with 0 even though the kernel refused.
  return result.code === 0 && message === ""
    ? null
    : new ExecError(writeArgv([change]), result.code, message);
}

/** Writes settings in their order, by one program, which goes on after one that is refused. */
async function write(exec: Exec, changes: readonly SysctlChange[]): Promise<ExecResult | ExecError> {
  try {
    return await exec.run(writeArgv(changes), QUICK);
  } catch (error) {
    if (error instanceof ExecError) return error;
    throw error;
  }
}

function writeArgv(changes: readonly SysctlChange[]): readonly string[] {
  return ["sysctl", "-w", ...changes.map(({ name, value }) => `${name}=${value}`)];
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
