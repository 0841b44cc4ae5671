/**
 * A test run that is killed leaves nothing behind: no namespace, no API server, no folder.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import type { Guarded } from "../support/guarded_program.ts";
import { KAPI } from "../support/kapi.ts";
import { pathExists } from "../support/path_exists.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { eventually } from "../support/until.ts";

/** Those of `left` that are still there. */
async function leftOf({ netns, folder, pids }: Guarded): Promise<string[]> {
  const paths = [`/run/netns/${netns}`, folder, ...pids.map((pid) => `/proc/${pid}`)];
  const left = await Promise.all(paths.map(async (path) => await pathExists(path) ? [path] : []));
  return left.flat();
}

e2eTest(
  "what a killed test run has made goes with it",
  [ROOT_NAMESPACES, program("ip"), ...KAPI],
  async () => {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "-q", "--config", `${ROOT}/deno.json`, `${ROOT}/tests/support/guarded_program.ts`],
      stdout: "piped",
    }).spawn();
    const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    const { value = "" } = await reader.read();
    const made: Guarded = JSON.parse(value);
    assertEquals((await leftOf(made)).length, 4, "all of it is there");
    child.kill("SIGKILL");
    await child.status;
    await reader.cancel();
    await eventually(async () => assertEquals(await leftOf(made), []), { everyMs: 50 });
  },
);
