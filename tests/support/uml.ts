/**
 * Runs tests inside of a user-mode Linux, whose kernel has what most test machines lack: SCTP, IPVS, sets, dummy devices.
 *
 * @module
 */
import { assert } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { findProgram } from "../../tools/setup.ts";
import { testFailures, withoutMiddle } from "../../tools/test_failures.ts";
import { type Need, need, program, ROOT_NAMESPACES, unmet } from "./skip.ts";

/** A need that a machine which runs CI must meet: without the user-mode Linux nothing would try IPVS there. */
function always(wanted: Need): Need {
  return { ...wanted, avoidable: () => true };
}

const PROCESSOR = need(
  "a user-mode Linux",
  "an x86-64 processor",
  () => Deno.build.arch === "x86_64" ? undefined : Deno.build.arch,
);
/** See tests/lab/uml_xstate.c. */
const COMPILER = need("a user-mode Linux", "gcc, because this processor has AMX", () => {
  const hasAmx = new TextDecoder().decode(
    new Deno.Command("grep", { args: ["-cw", "amx_tile", "/proc/cpuinfo"] }).outputSync().stdout,
  ).trim() !== "0";
  return !hasAmx || findProgram("gcc") !== undefined ? undefined : "no gcc on the PATH";
});
/** Runs its one argument, a command of the shell, in the project's folder in one. */
const UML_SCRIPT = `${ROOT}/tests/lab/uml.sh`;
/** A few seconds where nothing else runs. */
const BOOT_LIMIT_SECONDS = 300;

/** What {@linkcode bootNeed} tries, and where it remembers how that went. */
interface Boot {
  /** Runs its one argument, a command of the shell, inside. */
  readonly script: string;
  /** Name of a variable of the environment: all that the test files of a run share, each of which has its own modules. */
  readonly variable: string;
  /** What it needs; where that is missing, there is nothing to try. */
  readonly needs: readonly Need[];
}

/** That it boots: where tracing of processes is forbidden, say, it does not. Takes some seconds, once in a run. */
function bootNeed({ script, variable, needs }: Boot): Need {
  const probe = (): string | undefined => {
    if (needs.some((wanted) => unmet(wanted) !== undefined)) return undefined;
    const known = Deno.env.get(variable);
    const problem = known ?? bootProblem(script);
    Deno.env.set(variable, problem);
    return problem === "" ? undefined : problem;
  };
  return always(need("a user-mode Linux", "a machine on which it boots", probe));
}

/** Why it does not boot, in the last words of its console; `""` if it does. */
function bootProblem(script: string): string {
  const { code, stdout, stderr } = new Deno.Command(script, {
    args: ["true"],
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(BOOT_LIMIT_SECONDS) },
  }).outputSync();
  if (code === 0) return "";
  const lines = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  const words = lines.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  return [`status ${code}`, ...words.slice(-3)].join("; ");
}

const PARTS: readonly Need[] = [
  ROOT_NAMESPACES,
  PROCESSOR,
  program("linux.uml"),
  program("depmod"),
  COMPILER,
].map(always);

/** What running tests in one needs. */
export const UML_NEEDS: readonly Need[] = [
  ...PARTS,
  bootNeed({ script: UML_SCRIPT, variable: "KPROXY_UML_BOOT", needs: PARTS }),
];

/**
 * Boots one and runs test files in it.
 *
 * @throws {AssertionError} with what failed first, unless `summary` (`1 passed (7 steps) | 0 failed`) is what they end with
 */
export async function testInUml(files: readonly string[], summary: string, limitMs: number): Promise<void> {
  const inside = `${Deno.execPath()} test -A --no-check ${files.join(" ")}`;
  const { code, stdout, stderr } = await new Deno.Command(UML_SCRIPT, {
    args: [inside],
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(limitMs / 1000) },
  }).output();
  const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  assert(code === 0 && text.includes(`ok | ${summary}`), umlFailure(code, text, summary));
}

/** Characters of what one failed test says that a message has; a log may have many. */
const ERROR_LENGTH = 6_000;
/** Of what was said last, where no test says that it failed. */
const TAIL_LENGTH = 8_000;

/**
 * What is wrong with the tests inside, the most telling first, because a log may be cut at any length: which tests failed, how the output
 * ends, and what each of them says.
 *
 * @param text what the kernel's `deno test` printed
 */
function umlFailure(code: number, text: string, summary: string): string {
  const { names, errors, end = "before all tests had run" } = testFailures(text);
  const ended = `it ended with ${code}, ${end}; wanted: ok | ${summary}`;
  const crashes = text.split("\n").filter((line) => line.includes("segfault"));
  if (names.length === 0) return [ended, ...crashes, text.slice(-TAIL_LENGTH).trim()].join("\n");
  const failed = ["failed in the user-mode Linux:", ...names, ended, ...crashes].join("\n");
  return [failed, ...errors.map((error) => withoutMiddle(error, ERROR_LENGTH))].join("\n\n");
}
