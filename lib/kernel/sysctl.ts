/**
 * Kernel settings through the `sysctl` program, because the runtime keeps `/proc/sys` closed; and those of a node that may not have
 * this program.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import { isPermissionProblem } from "./tool_errors.ts";
import { type Exec, type ExecOptions, QUICK_LIMIT_MS } from "./exec.ts";
import type { Logger } from "../observe/log.ts";

/** Outcome of setting a sysctl. `found` is the value before. */
export type SysctlOutcome =
  | { readonly kind: "unchanged" | "changed"; readonly found: string }
  /**
   * The sysctl differs, and this process may not write it (`readOnly`: read-only `/proc/sys`, missing capability), or
   * the kernel refuses the value, or the program could not be started.
   */
  | { readonly kind: "readOnly" | "refused"; readonly found: string; readonly error: ExecError }
  /** This kernel does not have the setting, or not yet (its module is not loaded). */
  | { readonly kind: "missing" };

/** Time limit of reads and writes: nothing begins before the settings are known. */
const QUICK: ExecOptions = { timeoutMs: QUICK_LIMIT_MS };

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
  // The program goes on after a setting that it cannot read, and only names show which one is missing then.
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
  /** Value that was read before; null if this kernel does not have the setting. */
  readonly found: string | null;
  readonly value: string;
}

/**
 * Writes settings unless they already have the values, so that a process without the right to write runs where an earlier one has
 * prepared the node. One program writes them all; if it has something to say, each is written once more by its own.
 * The outcomes are in the order of `changes`.
 */
export async function changeSysctls(
  exec: Exec,
  changes: readonly SysctlChange[],
): Promise<readonly SysctlOutcome[]> {
  const wanted = changes.filter(({ found, value }) => found !== null && found !== value);
  const isDone = wanted.length > 1 && await write(exec, wanted) === null;
  const outcomes: SysctlOutcome[] = [];
  for (const change of changes) {
    const { found, value } = change;
    if (found === null) outcomes.push({ kind: "missing" });
    else if (found === value) outcomes.push({ kind: "unchanged", found });
    else outcomes.push(outcomeOf(found, isDone ? null : await write(exec, [change])));
  }
  return outcomes;
}

/** Writes settings in their order, by one program, which goes on after one that is refused. @returns null if all are written */
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
  const isReadOnly = isPermissionProblem(error.stderr) || error.stderr.includes("Read-only file system");
  return { kind: isReadOnly ? "readOnly" : "refused", found, error };
}

const MISSING_REGEXP = /cannot stat .*No such file or directory|is an unknown key/;

/** 1 switches IPv6 off. */
export const DISABLE_IPV6 = "net.ipv6.conf.all.disable_ipv6";

/** The kernel settings of this node, as far as they can be read. None is read twice while a node is prepared. */
export interface NodeSysctls {
  /** False if there is no program to ask. */
  readonly known: boolean;
  /** 1 if IPv6 is switched off; null if the kernel does not have it, or that is unknown. */
  readonly ipv6Disabled: string | null;
  /**
   * Values of settings: null for those that this kernel does not have (they are asked for again the next
   * time: a module may bring them); an empty map if they are unknown.
   */
  readonly read: (names: readonly string[]) => Promise<ReadonlyMap<string, string | null>>;
  /** Forgets settings that something else writes: they are read anew. */
  readonly forget: (names: readonly string[]) => void;
  /**
   * The outcomes in the order of `changes`; null if that is unknown.
   *
   * @throws {ExecError} if the kernel refuses a value for another reason than that it may not be written
   */
  readonly change: (changes: readonly SysctlChange[]) => Promise<readonly SysctlOutcome[] | null>;
}

/** Settings of a node that has no program to ask. */
export const UNKNOWN_SYSCTLS: NodeSysctls = {
  known: false,
  ipv6Disabled: null,
  read: () => Promise.resolve(new Map()),
  forget: () => {},
  change: () => Promise.resolve(null),
};

/**
 * Finds out whether there is a program to ask, and says so in the log if there is none.
 *
 * @param names settings that will be asked for soon: read by the same program
 */
export async function nodeSysctls(
  exec: Exec,
  log: Logger,
  names: readonly string[] = [],
): Promise<NodeSysctls> {
  const ahead = [...new Set([...names, DISABLE_IPV6])];
  try {
    return knownSysctls(
      exec,
      await readSysctls(exec, ahead).catch((error) => {
        // An unreadable setting fails where it is needed; here only that of IPv6 counts.
        if (
          ahead.length === 1 || !(error instanceof ExecError) || error.isMissing() || error.isInconclusive()
        ) {
          throw error;
        }
        return readSysctls(exec, [DISABLE_IPV6]);
      }),
    );
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
  }
  log.warn("Kernel settings cannot be read: install procps, there is no program sysctl on PATH", {
    assumed: "IPv6 is on if its rules can be written, and INVALID packets must be dropped",
  });
  return UNKNOWN_SYSCTLS;
}

/**
 * Makes sure that IPv6 is on: the kernel takes rules for a family that is switched off. Where that is unknown, nothing
 * says that it is off.
 *
 * @throws {UnsupportedError} if it is not
 */
export function requireIpv6({ known, ipv6Disabled }: NodeSysctls): void {
  if (!known || ipv6Disabled === "0") return;
  throw new UnsupportedError("IPv6", `${DISABLE_IPV6} = 0`, ipv6Disabled ?? "a kernel without IPv6");
}

function knownSysctls(exec: Exec, found: ReadonlyMap<string, string | null>): NodeSysctls {
  const values = new Map<string, string>();
  const keep = (some: ReadonlyMap<string, string | null>): void => {
    for (const [name, value] of some) if (value !== null) values.set(name, value);
  };
  const forget = (names: readonly string[]): void => names.forEach((name) => values.delete(name));
  keep(found);
  return {
    known: true,
    ipv6Disabled: found.get(DISABLE_IPV6) ?? null,
    async read(names) {
      keep(await readSysctls(exec, names.filter((name) => !values.has(name))));
      return new Map(names.map((name) => [name, values.get(name) ?? null]));
    },
    forget,
    async change(changes) {
      forget(changes.map(({ name }) => name));
      const outcomes = await changeSysctls(exec, changes);
      for (const outcome of outcomes) if (outcome.kind === "refused") throw outcome.error;
      return outcomes;
    },
  };
}
