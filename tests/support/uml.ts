/**
 * Runs tests inside of a user-mode Linux, whose kernel has what most test machines lack: SCTP, IPVS, sets, dummy devices.
 *
 * @module
 */
import { assert, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { findProgram } from "../../tools/setup.ts";
import { type Need, need, program, ROOT_NAMESPACES } from "./skip.ts";

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
}, Deno.uid() === 0);

/** What booting one needs. */
export const UML_NEEDS: readonly Need[] = [
  ROOT_NAMESPACES,
  PROCESSOR,
  program("linux.uml"),
  program("depmod"),
  COMPILER,
];

/**
 * Boots one and runs test files in it.
 *
 * @throws {AssertionError} with all of the output, unless `summary` (`1 passed (7 steps) | 0 failed`) is what they end with
 */
export async function testInUml(files: readonly string[], summary: string, limitMs: number): Promise<void> {
  const inside = `${Deno.execPath()} test -A --no-check ${files.join(" ")}`;
  const { code, stdout, stderr } = await new Deno.Command(`${ROOT}/tests/lab/uml.sh`, {
    args: [inside],
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(limitMs / 1000) },
  }).output();
  const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  assert(code === 0, `it ended with ${code}:\n${text}`);
  assertStringIncludes(text, `ok | ${summary}`);
}
