/**
 * The test task: installs what the end-to-end tests need, runs all tests, says what was skipped and why, and ends with one
 * line that counts them. `deno task test [PATH | NAME]…` runs the files below a path, or the tests whose name holds the words.
 *
 * @module
 */
import { writeLine } from "./output.ts";
import { projectFiles, ROOT } from "./project_files.ts";
import { installPackages, TEST_PACKAGES } from "./setup.ts";
import type { Skip } from "../tests/support/skip.ts";

/** How tests ended. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Tests that take the machine to themselves; their timing must not suffer from others. The rest runs in parallel. */
const EXCLUSIVE = /^tests\/(e2e|lab|parity|bench)\//;
/** Longest time of one `deno test`; something hangs if it takes more. */
const TIMEOUT_MS = 35 * 60_000;
const TEST_FILE = /_test\.ts$/;

/** What the last line of `deno test` says; undefined if there is none (it never ran a test, or was killed). */
export function parseSummary(output: string): Counts | undefined {
  // deno-lint-ignore no-control-regex -- colours begin with an escape character.
  const plain = output.replace(/\x1b\[[0-9;]*m/g, "");
  const line = plain.split("\n").findLast((text) => /^(ok|FAILED) \| \d+ passed/.test(text));
  if (line === undefined) return undefined;
  const count = (word: string): number => Number(new RegExp(`\\| (\\d+) ${word}`).exec(line)?.[1] ?? 0);
  return { passed: count("passed"), failed: count("failed"), skipped: count("ignored") };
}

/** The counts of one run. A run that failed without saying so counts as one failure. */
export function countRun(output: string, success: boolean): Counts {
  const counts = parseSummary(output) ?? { passed: 0, failed: 0, skipped: 0 };
  return success ? counts : { ...counts, failed: Math.max(1, counts.failed) };
}

/** The last line of the task. */
export function summaryLine({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

/** Test files below the paths given (all if none is), and the other words, which filter by name. */
export async function chooseTests(
  args: readonly string[],
  root: string = ROOT,
): Promise<{ files: string[]; filter: string | undefined }> {
  const all = (await projectFiles(root)).filter((path) => TEST_FILE.test(path));
  const isBelow = (path: string, arg: string): boolean => {
    const wanted = arg.replace(/^\.\//, "").replace(/\/$/, "");
    return path === wanted || path.startsWith(`${wanted}/`);
  };
  const paths = args.filter((arg) => all.some((path) => isBelow(path, arg)));
  const words = args.filter((arg) => !paths.includes(arg));
  return {
    files: paths.length === 0 ? all : all.filter((path) => paths.some((arg) => isBelow(path, arg))),
    filter: words.length === 0 ? undefined : words.join(" "),
  };
}

/** The skips that {@linkcode e2eTest} recorded. */
async function readSkips(file: string): Promise<Skip[]> {
  const lines = (await Deno.readTextFile(file)).split("\n").filter((line) => line !== "");
  return lines.map((line) => JSON.parse(line));
}

async function runTests(
  files: readonly string[],
  options: readonly string[],
  skipFile: string,
): Promise<Counts> {
  if (files.length === 0) return { passed: 0, failed: 0, skipped: 0 };
  const colors: Record<string, string> = Deno.stdout.isTerminal() && !Deno.noColor
    ? { FORCE_COLOR: "1" }
    : { NO_COLOR: "1" };
  const child = new Deno.Command(Deno.execPath(), {
    args: ["test", "-A", "--permit-no-files", ...options, ...files],
    cwd: ROOT,
    env: { ...colors, KPROXY_SKIPS: skipFile },
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const timer = setTimeout(() => {
    writeLine(`Still running after ${TIMEOUT_MS / 60_000} minutes: stopped`);
    child.kill("SIGKILL");
  }, TIMEOUT_MS);
  const decoder = new TextDecoder();
  let output = "";
  for await (const chunk of child.stdout) {
    output += decoder.decode(chunk, { stream: true });
    let rest: Uint8Array = chunk;
    while (rest.length > 0) rest = rest.subarray(Deno.stdout.writeSync(rest));
  }
  const { success } = await child.status;
  clearTimeout(timer);
  return countRun(output, success);
}

/** Prints the skips by reason; returns how many tests were ignored without one. */
function printSkips(skips: readonly Skip[], skipped: number): number {
  const byReason = Map.groupBy(skips, ({ reason }) => reason);
  for (const [reason, tests] of byReason) {
    writeLine(`Skipped, ${tests.length} ${tests.length === 1 ? "test" : "tests"}: ${reason}`);
    for (const { test } of tests) writeLine(`  ${test}`);
  }
  const unexplained = Math.max(0, skipped - skips.length);
  if (unexplained > 0) {
    writeLine(`Ignored without a reason: ${unexplained} (use e2eTest of tests/support/skip.ts)`);
  }
  return unexplained;
}

if (import.meta.main) {
  await installPackages(TEST_PACKAGES);
  const { files, filter } = await chooseTests(Deno.args);
  const byName = filter === undefined ? [] : [`--filter=${filter}`];
  const skipFile = await Deno.makeTempFile({ prefix: "kproxy-skips-" });
  try {
    const parallel = await runTests(
      files.filter((path) => !EXCLUSIVE.test(path)),
      ["--parallel", ...byName],
      skipFile,
    );
    const exclusive = await runTests(files.filter((path) => EXCLUSIVE.test(path)), byName, skipFile);
    const skipped = parallel.skipped + exclusive.skipped;
    const skips = filter === undefined ? await readSkips(skipFile) : [];
    const unexplained = filter === undefined ? printSkips(skips, skipped) : 0;
    const counts = {
      passed: parallel.passed + exclusive.passed,
      // A test that is switched off by hand must not pass CI unseen.
      failed: parallel.failed + exclusive.failed + (Deno.env.get("CI") === "true" ? unexplained : 0),
      skipped,
    };
    writeLine(summaryLine(counts));
    if (counts.failed > 0 || counts.passed === 0) Deno.exitCode = 1;
  } finally {
    await Deno.remove(skipFile);
  }
}
