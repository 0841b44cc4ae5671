/**
 * Runs tests inside a user-mode Linux, whose kernel has what most test machines lack: SCTP, IPVS, sets, dummy devices.
 *
 * @module
 */
import { assert } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { findProgram } from "../../tools/setup.ts";
import { testFailures, withoutMiddle } from "../../tools/test_failures.ts";
import { type Need, need, program, ROOT_NAMESPACES, unmet } from "./skip.ts";

/** A need that a CI machine must meet: without the user-mode Linux nothing would test IPVS there. */
function always(wanted: Need): Need {
  return { ...wanted, avoidable: () => true };
}

const PROCESSOR = need(
  "a user-mode Linux",
  "an x86-64 processor",
  () => Deno.build.arch === "x86_64" ? undefined : Deno.build.arch,
);
/** Compiler for tests/lab/uml_xstate.c. */
const COMPILER = need("a user-mode Linux", "gcc, because this processor has AMX", () => {
  const hasAmx = new TextDecoder().decode(
    new Deno.Command("grep", { args: ["-cw", "amx_tile", "/proc/cpuinfo"] }).outputSync().stdout,
  ).trim() !== "0";
  return !hasAmx || findProgram("gcc") !== undefined ? undefined : "no gcc on the PATH";
});
/** Script that runs its one argument, a shell command, in a user-mode Linux, in the project's folder. */
const UML_SCRIPT = `${ROOT}/tests/lab/uml.sh`;
/** Limit of the boot, which takes a few seconds on a quiet machine. */
const BOOT_LIMIT_SECONDS = 300;

/** A test boot, and where its result is cached. */
interface Boot {
  /** Script that runs its one argument, a shell command, inside. */
  readonly script: string;
  /** Environment variable with the result: test files of a run share the environment, but not modules. */
  readonly variable: string;
  /** Needs of the boot; without them it is not tried. */
  readonly needs: readonly Need[];
}

/** Need that it boots: where ptrace is forbidden, for example, it does not. Takes some seconds, once in a run. */
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

/** Why it does not boot: the last lines of its console; `""` if it does. */
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

/** Needs of tests in a user-mode Linux. */
export const UML_NEEDS: readonly Need[] = [
  ...PARTS,
  bootNeed({ script: UML_SCRIPT, variable: "KPROXY_UML_BOOT", needs: PARTS }),
];

/**
 * Boots a user-mode Linux and runs test files in it.
 *
 * @throws {AssertionError} with the first failures, unless `summary` (`1 passed (7 steps) | 0 failed`) ends the output
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

/** Limit of characters per failed test in a message; a log may have many. */
const ERROR_LENGTH = 6_000;
/** Characters of the last output, if no test reports a failure. */
const TAIL_LENGTH = 8_000;

/**
 * Failures of the tests inside, the most telling first, because a log may be truncated: names of failed tests, the end of the
 * output, and the errors of each test.
 *
 * @param text output of `deno test` inside
 */
function umlFailure(code: number, text: string, summary: string): string {
  const { names, errors, end = "before all tests had run" } = testFailures(text);
  const ended = `it ended with ${code}, ${end}; wanted: ok | ${summary}`;
  const crashes = text.split("\n").filter((line) => line.includes("segfault"));
  if (names.length === 0) return [ended, ...crashes, text.slice(-TAIL_LENGTH).trim()].join("\n");
  const failed = ["failed in the user-mode Linux:", ...names, ended, ...crashes].join("\n");
  return [failed, ...errors.map((error) => withoutMiddle(error, ERROR_LENGTH))].join("\n\n");
}
