/**
 * The mutate task: removes each numbered rule of the planner and each decision of the test vectors from the model, one at a
 * time in a copy of the project, and asserts that flow or golden cases fail. `deno task mutate [WORDS]…` tries mutations whose
 * name contains one of the words; with `--generic`, flips of operators and conditions instead (`flips/generic.ts`).
 * Exits with 1 if a mutation went unnoticed. May run beside other tests: the project itself is only
 * read, and how long a change has to wait for its turn does not count.
 *
 * @module
 */
import { copyProject } from "./copy_project.ts";
import { tryGenericFlips } from "./flips/generic.ts";
import { IPVS_MUTATIONS } from "./mutate_ipvs.ts";
import { MODEL_MUTATIONS } from "./mutate_model.ts";
import { NFTABLES_MUTATIONS } from "./mutate_nftables.ts";
import { RULE_MUTATIONS } from "./mutate_rules.ts";
import { USERSPACE_MUTATIONS } from "./mutate_userspace.ts";
import { writeLine } from "./output.ts";
import { type Counts, parseSummary } from "./run_tests.ts";

/** One change of a source file. */
export interface Edit {
  /** File, relative to the project's folder. */
  readonly file: string;
  /** Text to replace, which must occur exactly once. */
  readonly find: string;
  readonly replace: string;
}

/** A mutation: one fault, planted by edits. */
export interface Mutation {
  readonly name: string;
  readonly edits: readonly Edit[];
  /** True if packets and rules of the cases cannot show the fault, so that unit tests must. */
  readonly unitTests?: boolean;
}

export const MUTATIONS: readonly Mutation[] = [
  ...RULE_MUTATIONS,
  ...IPVS_MUTATIONS,
  ...NFTABLES_MUTATIONS,
  ...USERSPACE_MUTATIONS,
  ...MODEL_MUTATIONS,
];

const COPIED = ["lib", "links", "tests/flows", "tests/golden", "tests/support", "deno.json", "deno.lock"];
/** Case tests, the fastest first: the first failure ends the run. */
const CASE_TESTS = [
  "tests/golden/golden_test.ts",
  "tests/golden/nftables_golden_test.ts",
  "tests/golden/ipvs_golden_test.ts",
  "tests/flows/flows_test.ts",
  "tests/flows/iptables_rules_test.ts",
];
/**
 * CPU time of one test run, which ends a mutant that runs for ever. Wall time would not do: beside
 * other tests, at low priority, a run can be kept waiting for long.
 */
const CPU_SECONDS = 120;
/**
 * Wall time of one test run, which ends a mutant that waits for ever, and uses no CPU. A wait in a test ends after a minute (`until`), so
 * this is for other hangs. The longest run, IPVS mode's unit tests, takes 15 s of CPU; at the lowest
 * priority beside many busy programs, a shorter run has been kept waiting for more than a quarter of an hour.
 */
const TIMEOUT_MS = 40 * 60_000;

/**
 * The text after the edit.
 *
 * @throws {RangeError} if the text occurs never, or more than once: the list no longer fits the source
 */
function applyEdit(text: string, edit: Edit): string {
  const parts = text.split(edit.find);
  if (parts.length !== 2) {
    throw new RangeError(
      `${edit.file} holds ${JSON.stringify(edit.find)} ${parts.length - 1} times instead of once`,
    );
  }
  return parts.join(edit.replace);
}

/** Runs test files in the copy; `undefined`: they ended without counts. */
async function runOnce(
  folder: string,
  args: readonly string[],
  stop: AbortSignal,
): Promise<{ success: boolean; counts: Counts | undefined }> {
  const { success, stdout, stderr } = await new Deno.Command("/bin/sh", {
    args: [
      "-c",
      `ulimit -t ${CPU_SECONDS}; exec "$@"`,
      "sh",
      ...[Deno.execPath(), "test", "-A", "--no-check", "--quiet", ...args],
    ],
    cwd: folder,
    env: { NO_COLOR: "1" },
    signal: AbortSignal.any([stop, AbortSignal.timeout(TIMEOUT_MS)]),
  }).output();
  stop.throwIfAborted();
  return {
    success,
    counts: parseSummary(new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr)),
  };
}

async function runTests(
  folder: string,
  files: readonly string[],
  stop: AbortSignal,
): Promise<"passed" | "failed" | "broken"> {
  // One failure is enough, if some test passed before it.
  const quick = await runOnce(folder, ["--fail-fast", ...files], stop);
  if (quick.success) return "passed";
  if ((quick.counts?.passed ?? 0) > 0) return "failed";
  const { counts } = await runOnce(folder, files, stop);
  // A mutant that keeps every test from running says nothing about the tests.
  return (counts?.passed ?? 0) === 0 ? "broken" : "failed";
}

/** Unit tests beside the changed files; for a mode all, because its folders are tested through one another. */
async function unitTestsOf(folder: string, mutation: Mutation): Promise<string[]> {
  const tests = new Set<string>();
  const collect = async (parent: string, isDeep: boolean): Promise<void> => {
    for await (const { name, isDirectory } of Deno.readDir(`${folder}/${parent}`)) {
      if (name.endsWith("_test.ts")) tests.add(`${parent}/${name}`);
      if (isDirectory && isDeep) await collect(`${parent}/${name}`, isDeep);
    }
  };
  for (const { file } of mutation.edits) {
    const [mode] = /^lib\/backend\/[^/]+/.exec(file) ?? [];
    await collect(mode ?? file.slice(0, file.lastIndexOf("/")), mode !== undefined);
  }
  return [...tests];
}

/** Applies one mutation in the copy and undoes it. Yields a problem, or null if a test failed. */
async function tryMutation(folder: string, mutation: Mutation, stop: AbortSignal): Promise<string | null> {
  const originals = new Map<string, string>();
  try {
    for (const edit of mutation.edits) {
      const path = `${folder}/${edit.file}`;
      const text = await Deno.readTextFile(path);
      if (!originals.has(path)) originals.set(path, text);
      await Deno.writeTextFile(path, applyEdit(text, edit));
    }
    const tests = mutation.unitTests === true ? await unitTestsOf(folder, mutation) : CASE_TESTS;
    const result = await runTests(folder, tests, stop);
    if (result === "failed") return null;
    return result === "passed" ? "no test notices it" : "the changed source does not run";
  } catch (error) {
    if (error instanceof RangeError) return error.message;
    throw error;
  } finally {
    for (const [path, text] of originals) await Deno.writeTextFile(path, text);
  }
}

/** Tries all mutations, with a project copy per worker. Yields problems in the order of the list. */
async function tryAll(
  mutations: readonly Mutation[],
  workers: number,
  stop: AbortSignal,
): Promise<string[]> {
  const problems = new Map<Mutation, string>();
  const left = [...mutations];
  const work = async (): Promise<void> => {
    const folder = await copyProject(COPIED);
    try {
      if (await runTests(folder, CASE_TESTS, stop) !== "passed") {
        throw new Error("The tests fail before anything is changed");
      }
      for (let mutation = left.shift(); mutation !== undefined; mutation = left.shift()) {
        const problem = await tryMutation(folder, mutation, stop);
        writeLine(`${problem === null ? "noticed " : "UNNOTICED"} ${mutation.name}`);
        if (problem !== null) problems.set(mutation, problem);
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  };
  // Each worker removes its copy before the first error ends the task.
  const ends = await Promise.allSettled(Array.from({ length: workers }, work));
  const error = ends.find((end) => end.status === "rejected");
  if (error !== undefined) throw error.reason;
  return mutations.filter((one) => problems.has(one)).map((one) => `${one.name}: ${problems.get(one)}`);
}

async function tryNamed(words: readonly string[], workers: number, stop: AbortSignal): Promise<number> {
  const chosen = MUTATIONS.filter(({ name }) =>
    words.length === 0 || words.some((word) => name.includes(word))
  );
  if (chosen.length === 0) {
    writeLine(`No mutation is called ${words.join(" or ")}`);
    return 1;
  }
  const problems = await tryAll(chosen, workers, stop);
  writeLine();
  for (const problem of problems) writeLine(problem);
  writeLine(`${chosen.length - problems.length} of ${chosen.length} changes are noticed by tests`);
  return problems.length === 0 ? 0 : 1;
}

async function main(words: readonly string[]): Promise<number> {
  // On an early end, workers still remove their copies.
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => stop.abort(new Error(`Ended by ${signal}`)));
  }
  const workers = Math.max(1, Math.min(4, navigator.hardwareConcurrency));
  return words.includes("--generic")
    ? await tryGenericFlips(words.filter((word) => word !== "--generic"), workers, stop.signal)
    : await tryNamed(words, workers, stop.signal);
}

if (import.meta.main) Deno.exitCode = await main(Deno.args);
