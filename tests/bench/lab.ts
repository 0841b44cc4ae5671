/**
 * Runs this program again in the user-mode Linux of `tests/lab/uml.sh`, whose kernel has IPVS.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";

/** Even the slowest machine is done by then. */
const LIMIT_SECONDS = 3 * 3600;

/** True inside of a user-mode Linux. */
export function isUserModeLinux(): boolean {
  return /^model name\s*: UML$/m.test(Deno.readTextFileSync("/proc/cpuinfo"));
}

/** Where files may be made that no other kernel sees: sockets need that. */
export const LAB_FOLDER = "/run";

/** Boots one, runs `deno run -A SCRIPT ARGS` in it, and resolves to the exit code. Its output comes when it has ended. */
export async function runInLab(script: string, args: readonly string[]): Promise<number> {
  const words = [Deno.execPath(), "run", "-A", "-q", script, ...args];
  const child = new Deno.Command(`${ROOT}/tests/lab/uml.sh`, {
    args: [words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ")],
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(LIMIT_SECONDS), UML_MEM: "3G" },
  }).spawn();
  return (await child.status).code;
}
