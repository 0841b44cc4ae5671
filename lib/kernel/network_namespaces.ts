/**
 * Network namespaces through `ip netns`: made, entered, wired and removed.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, type ExecOptions, OWN_PROGRAMS, runOk } from "./exec.ts";

/** Error of `ip netns exec` for a program that is not there. */
const ABSENT_PROGRAM = /^exec of ".*" failed: No such file or directory/m;
const GONE = /No such file or directory/;
/** Tries of a removal: a signal of the terminal ends `ip`, too, so that another run must do its work. */
const REMOVAL_TRIES = 3;

/** Names of all namespaces that have one. */
export async function listNamespaces(exec: Exec): Promise<readonly string[]> {
  const text = await runOk(exec, ["ip", "netns", "list"]);
  // `NAME (id: 3)`
  return text.split("\n").map((line) => line.trim().split(" ", 1)[0] ?? "").filter((name) => name !== "");
}

/** Makes a namespace, whose loopback is up. */
export async function addNamespace(exec: Exec, name: string, options?: ExecOptions): Promise<void> {
  await runOk(exec, ["ip", "netns", "add", name], options);
  await runOk(exec, ["ip", "-n", name, "link", "set", "lo", "up"], options);
}

/**
 * Removes a namespace's name: with its last process it goes, and so do its devices and rules. A missing one is fine.
 *
 * @throws {ExecError} if it is still there
 */
export async function deleteNamespace(exec: Exec, name: string): Promise<void> {
  for (let tries = 1;; tries++) {
    try {
      await runOk(exec, ["ip", "netns", "del", name]);
      return;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      if (GONE.test(error.stderr)) return;
      if (tries === REMOVAL_TRIES || error.isMissing()) throw error;
    }
  }
}

/** Carries out lines of `ip -batch` in a namespace; `-6 ` in front of one is for IPv6. */
export async function runIpLines(
  exec: Exec,
  name: string,
  lines: readonly string[],
  options: ExecOptions = {},
): Promise<void> {
  for (const isSix of [false, true]) {
    const chosen = lines.filter((line) => line.startsWith("-6 ") === isSix);
    if (chosen.length === 0) continue;
    const argv = ["ip", ...(isSix ? ["-6"] : []), "-n", name, "-batch", "-"];
    const stdin = chosen.map((line) => `${line.replace(/^-6 /, "")}\n`).join("");
    await runOk(exec, argv, { ...options, stdin });
  }
}

/**
 * Runs programs inside a namespace: those that kproxy may start anyway, and kproxy itself. `ip` would start any.
 *
 * @param ownProgram path of the runtime, or of the compiled kproxy
 */
export function execInNamespace(exec: Exec, name: string, ownProgram: string): Exec {
  return {
    async run(argv, options) {
      const [program = ""] = argv;
      if (program !== ownProgram && !OWN_PROGRAMS.includes(program)) {
        throw new TypeError(`kproxy does not start ${program}`);
      }
      const result = await exec.run(["ip", "netns", "exec", name, ...argv], options);
      if (result.code !== 0 && ABSENT_PROGRAM.test(result.stderr)) {
        throw new ExecError(argv, -1, result.stderr);
      }
      return result;
    },
  };
}
