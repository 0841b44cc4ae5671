/**
 * Sets through the `ipset` program.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import { destroySetLine, parseSets, parseSetSizes, type SavedSet } from "../netfilter/ipset.ts";
import { type Exec, type Input, runOk } from "./exec.ts";
import { isPermissionProblem, mayBlameLines, type RefusedLine, type RestoreOutcome } from "./tool_errors.ts";

// ipset's words where the kernel has no sets.
const NO_IPSET_REGEXP = /Cannot open session to kernel|Protocol not supported|Invalid argument/;
const IN_USE_REGEXP = /it is in use by a kernel component/;
/** The oldest ipset that is understood, by the first part of its version. */
export const OLDEST_MAJOR = 6;
const FAILED_LINE_REGEXP = /Error in line (\d+): (.*)/;
// Errors of the program itself, which then has not carried out some of the lines before, either.
const UNREADABLE_REGEXP = /Syntax error|No command specified/;
// Errors of sets that are not as the lines take for granted: no entry is to blame.
const OTHERWISE_REGEXP = /does not exist|is full|same type/;
/** How many lines a run has once one was refused: each further refusal costs the reading of no more than these. */
const PORTION_LINES = 256;
const RESTORE = ["ipset", "restore", "-exist"];

/**
 * Makes sure that ipset works here.
 *
 * @returns the version of the program
 * @throws {UnsupportedError} if the program, the kernel's part of it, or the right to use it is missing
 */
export async function probeIpset(exec: Exec): Promise<string> {
  try {
    const version = /v(\d+)\.\d+/.exec(await runOk(exec, ["ipset", "--version"]));
    if (version === null || Number(version[1]) < OLDEST_MAJOR) {
      throw new UnsupportedError(
        "ipset",
        `version ${OLDEST_MAJOR} or newer`,
        version?.[0] ?? "an unknown one",
      );
    }
    await runOk(exec, ["ipset", "list", "-name"]);
    return version[0];
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const cause = { cause: error };
    if (error.isMissing()) {
      throw new UnsupportedError("ipset", "the program ipset (package ipset)", "none on the PATH", cause);
    }
    if (isPermissionProblem(error.stderr)) {
      throw new UnsupportedError("ipset", "root or CAP_NET_ADMIN", error.stderr.trim(), cause);
    }
    if (NO_IPSET_REGEXP.test(error.stderr)) {
      throw new UnsupportedError("ipset", "the kernel module ip_set", error.stderr.trim(), cause);
    }
    throw error;
  }
}

/**
 * Names of all sets; none where there is no ipset program or no support in the kernel.
 *
 * @throws {ExecError} if they cannot be listed for another reason, such as missing rights
 */
export async function listSets(exec: Exec): Promise<readonly string[]> {
  try {
    const text = await runOk(exec, ["ipset", "list", "-name"]);
    return text.split("\n").filter((line) => line !== "");
  } catch (error) {
    if (error instanceof ExecError && (error.isMissing() || NO_IPSET_REGEXP.test(error.stderr))) return [];
    throw error;
  }
}

/**
 * The sets whose names are wanted, with their entries; by name.
 *
 * @throws {ExecError} if they cannot be listed
 */
export async function saveSets(
  exec: Exec,
  isWanted: (name: string) => boolean,
): Promise<ReadonlyMap<string, SavedSet>> {
  return parseSets(await runOk(exec, ["ipset", "save"]), isWanted);
}

/**
 * Number of entries of every set, others' included, by name; null where an old ipset prints none. No entry is read.
 *
 * @throws {ExecError} if they cannot be listed
 */
export async function setSizes(exec: Exec): Promise<ReadonlyMap<string, number | null>> {
  return parseSetSizes(await runOk(exec, ["ipset", "list", "-terse"]));
}

/**
 * Carries out lines of `ipset restore` in one run of the program, up to the first that fails. A line may add
 * what is there already, and remove what is gone already.
 *
 * @throws {ExecError} if one fails; the text names it
 */
export async function restoreSets(exec: Exec, text: Input): Promise<void> {
  await runOk(exec, RESTORE, { stdin: text });
}

/**
 * As {@linkcode restoreSets}, with lines that carry no line ends, but entries to be added that are refused, however many, do not keep
 * the lines behind them from being carried out. Costs a run for each of them, and one for each {@linkcode PORTION_LINES} lines.
 *
 * @throws {ExecError} if the program fails for another reason
 */
export async function restoreSetsOthers(exec: Exec, lines: readonly string[]): Promise<RestoreOutcome> {
  const refused: RefusedLine[] = [];
  let rest = lines.map((line, index) => ({ line, index }));
  let runs = 0;
  while (rest.length > 0) {
    const portion = refused.length === 0 ? rest : rest.slice(0, PORTION_LINES);
    const failed = await exec.run(RESTORE, { stdin: portion.map(({ line }) => `${line}\n`).join("") });
    runs++;
    if (failed.code === 0) {
      rest = rest.slice(portion.length);
      continue;
    }
    const [, number, problem = ""] = FAILED_LINE_REGEXP.exec(failed.stderr) ?? [];
    const at = Number(number) - 1;
    const bad = portion[at];
    const isRefusal = bad?.line.startsWith("add ") === true && mayBlameLines(failed) &&
      !OTHERWISE_REGEXP.test(problem);
    if (!isRefusal) throw new ExecError(RESTORE, failed.code, failed.stderr);
    refused.push({ index: bad.index, problem });
    // All lines can be carried out twice.
    rest = UNREADABLE_REGEXP.test(problem) ? rest.toSpliced(at, 1) : rest.slice(at + 1);
  }
  return { refused, runs };
}

/**
 * Removes sets in one run of the program, up to the first that cannot be removed.
 *
 * @throws {ExecError} if one cannot be removed
 */
export async function destroySets(exec: Exec, names: readonly string[]): Promise<void> {
  await runOk(exec, ["ipset", "restore"], {
    stdin: names.map((name) => `${destroySetLine(name)}\n`).join(""),
  });
}

/** True if the failure says that a rule still uses the set. */
export function isSetInUse({ stderr }: ExecError): boolean {
  return IN_USE_REGEXP.test(stderr);
}
