/**
 * SCTP Services with real SCTP sockets. The kernels of most test machines have none, so this runs in a user-mode Linux, with some
 * TCP and UDP beside it: another kernel, and the legacy iptables only.
 *
 * @module
 */
import { assert, assertStringIncludes } from "@std/assert";
import { findProgram } from "../../tools/setup.ts";
import { ROOT } from "../../tools/project_files.ts";
import { e2eTest, need, program, ROOT_NAMESPACES } from "../support/skip.ts";

const LIMIT_MS = 180_000;

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

e2eTest(
  "SCTP Services, and some of TCP and UDP, in a user-mode Linux",
  [ROOT_NAMESPACES, PROCESSOR, program("linux.uml"), program("depmod"), COMPILER],
  async () => {
    const inside = `${Deno.execPath()} test -A --no-check tests/lab/flows_in_uml.ts`;
    const { code, stdout, stderr } = await new Deno.Command(`${ROOT}/tests/lab/uml.sh`, {
      args: [inside],
      cwd: ROOT,
      stdin: "null",
      env: { UML_TIMEOUT: String(LIMIT_MS / 1000) },
    }).output();
    const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
    assert(code === 0, `it ended with ${code}:\n${text}`);
    assertStringIncludes(text, "ok | 1 passed (7 steps) | 0 failed");
  },
);
