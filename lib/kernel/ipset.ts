/**
 * Sets of the ipset program: which there are, and their removal.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, runOk } from "./exec.ts";

// ipset's words where the kernel has no sets.
const NO_IPSET_REGEXP = /Cannot open session to kernel|Protocol not supported|Invalid argument/;
const IN_USE_REGEXP = /it is in use by a kernel component/;

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
 * Removes sets in one run of the program, up to the first that cannot be removed.
 *
 * @throws {ExecError} if one cannot be removed
 */
export async function destroySets(exec: Exec, names: readonly string[]): Promise<void> {
  await runOk(exec, ["ipset", "restore"], { stdin: names.map((name) => `destroy ${name}\n`).join("") });
}

/** True if the failure says that a rule still uses the set. */
export function isSetInUse({ stderr }: ExecError): boolean {
  return IN_USE_REGEXP.test(stderr);
}
