/**
 * Runs the text of a test file as the test task would, to see what becomes of its tests.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";
import { countRun, type Counts } from "../../tools/run_tests.ts";

/** How the tests of a suite ended. */
export interface SuiteOutcome {
  readonly counts: Counts;
  /** Standard output, without colours. */
  readonly output: string;
  /** Why tests were skipped, in their order. */
  readonly skips: readonly string[];
}

/** Runs `suite` in a process of its own, with `env` over the environment. */
export async function runSuite(
  suite: string,
  env: Readonly<Record<string, string>>,
): Promise<SuiteOutcome> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-skip-" });
  try {
    await Deno.writeTextFile(`${folder}/suite_test.ts`, suite);
    await Deno.writeTextFile(`${folder}/skips`, "");
    const { success, stdout } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--no-check", `--config=${ROOT}/deno.json`, `${folder}/suite_test.ts`],
      env: { ...env, KPROXY_SKIPS: `${folder}/skips`, NO_COLOR: "1" },
      stderr: "null",
    }).output();
    const output = new TextDecoder().decode(stdout);
    const lines = (await Deno.readTextFile(`${folder}/skips`)).split("\n").filter((line) => line !== "");
    return { counts: countRun(output, success), output, skips: lines.map((line) => JSON.parse(line).reason) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
