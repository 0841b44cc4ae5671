/**
 * The test task: installs what end-to-end tests need, runs all tests, reports skipped ones with reasons, and ends with one
 * line of counts. `deno task test [PATH | NAME]…` runs the files below a path, or the tests whose name contains the words.
 *
 * @module
 */
import { bundle, writeBundle } from "./bundle.ts";
import { writeLine } from "./output.ts";
import { projectFiles, ROOT } from "./project_files.ts";
import { installPackages, TEST_PACKAGES } from "./setup.ts";
import { buildCommit } from "./release/commit.ts";
import { testFailures, withoutMiddle } from "./test_failures.ts";
import { buildEtcd, buildHelm, buildKapi, KAPI } from "../tests/support/kapi.ts";
import { TEST_BUNDLE_VARIABLE } from "../tests/support/bundle_folder.ts";
import { RECORD_VARIABLE, RECORDED, RECORDED_VARIABLE } from "../tests/support/fake_record.ts";
import { DRAWN_SEED_VARIABLE } from "../tests/support/fast_check.ts";
import { type Skip, unmet } from "../tests/support/skip.ts";
import { UML_NEEDS } from "../tests/support/uml.ts";

/** Files of end-to-end tests, from texts that list their names. */
function filesOf(...names: readonly string[]): readonly string[] {
  return names.flatMap((text) => text.split(" ")).map((name) => `tests/e2e/${name}_test.ts`);
}

/** Numbers of tests by outcome. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Tests that run one after another; others would disturb their timing. The rest runs in parallel, before them. */
const EXCLUSIVE = /^tests\/(e2e|lab|kernel|recorded|bench)\//;
/** Text in files of tests that boot a kernel in UML, with one processor, and measure no time. */
const IN_UML = "UML_NEEDS";
/** Tests of real packets, rules and pages that measure no time: at a low priority they may run beside others. */
const UNHURRIED = filesOf(
  "bundle check doctor external_ip_policy fakes_replay family_probe flows insecure_files lost_log offline_start planted_faults",
  "read_only_cache render selftest serve_metrics serve_namespace socket status_page transcripts userspace_listen userspace_look",
);
const UNHURRIED_FOLDERS = /^tests\/(kernel|recorded)\//;
/** Nice value of these tests. */
const UNHURRIED_NICE = 5;
/** The longest UML tests, to start with; `ipvs` uses records of shared tests. */
const UML_FIRST = filesOf("ipvs_switches ipvs ipvs_flows");
/** Tests that mostly wait, for periods or for a server, and measure no time either. */
const WAITING: readonly string[] = [
  ...filesOf(
    "affinity helm kube_events kube_formats kube_source_child kube_source node_facts serve_tls service_cidrs",
    "cleanup_modes clock_jump demo hostile_texts least_privilege rollout",
  ),
  "tests/bench/bench_test.ts",
];
/** All files that a list above names. */
export const LISTED: readonly string[] = [...UNHURRIED, ...WAITING, ...UML_FIRST];
/** Text in files of tests that need kapi; with an empty Go cache its build takes minutes. */
const WITH_API_SERVER = "KAPI";
/** Characters of each failure's output that are repeated at the end, where they are found even in a truncated log. */
const TOLD_AGAIN = 3_000;
/** Longest run of one `deno test`; one that takes longer hangs. */
const TIMEOUT_MS = 55 * 60_000;
const TEST_FILE = /_test\.ts$/;

/** Counts in the last line of `deno test`; undefined if there is none (it never ran a test, or was killed). */
export function parseSummary(output: string): Counts | undefined {
  // deno-lint-ignore no-control-regex -- colours begin with an escape character.
  const plain = output.replace(/\x1b\[[0-9;]*m/g, "");
  const line = plain.split("\n").findLast((text) => /^(ok|FAILED) \| \d+ passed/.test(text));
  if (line === undefined) return undefined;
  const count = (word: string): number => Number(new RegExp(`\\| (\\d+) ${word}`).exec(line)?.[1] ?? 0);
  return { passed: count("passed"), failed: count("failed"), skipped: count("ignored") };
}

/** Counts of one run. A run that failed without counts counts as one failure. */
export function countRun(output: string, success: boolean): Counts {
  const counts = parseSummary(output) ?? { passed: 0, failed: 0, skipped: 0 };
  return success ? counts : { ...counts, failed: Math.max(1, counts.failed) };
}

/** Last line of the task. */
function summaryLine({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

/** Test files below the given paths (all without paths), and the other words, which filter by name. */
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

/** True if `deno test --filter` runs a test with this name; without a filter it runs all. */
function isChosen(name: string, filter: string | undefined): boolean {
  const pattern = /^\/(.*)\/$/s.exec(filter ?? "")?.[1];
  return pattern === undefined ? name.includes(filter ?? "") : new RegExp(pattern).test(name);
}

/** Skips that {@linkcode e2eTest} recorded: a test records its skip before the filter drops it. */
async function readSkips(file: string, filter: string | undefined): Promise<Skip[]> {
  const lines = (await Deno.readTextFile(file)).split("\n").filter((line) => line !== "");
  return lines.map((line): Skip => JSON.parse(line)).filter(({ test }) => isChosen(test, filter));
}

/** Test files by lane. */
export interface Lanes {
  /** In parallel, at the beginning. */
  readonly shared: readonly string[];
  /** After the shared ones, one after another. */
  readonly exclusive: readonly string[];
  /** Beside the exclusive ones, one after another, at a low priority. */
  readonly unhurried: readonly string[];
  /** Likewise, at the usual priority. */
  readonly waiting: readonly string[];
  /**
   * UML tests: one after another, from the beginning, beside all others; two at a time after the exclusive ones. Two kernels
   * take all of two processors.
   */
  readonly uml: readonly string[];
  /** True if any file needs kapi. */
  readonly withApiServer: boolean;
}

/** @param read yields the text of a file */
async function laneOf(
  files: readonly string[],
  read: (path: string) => Promise<string>,
): Promise<Lanes> {
  const shared = files.filter((path) => !EXCLUSIVE.test(path));
  const others = files.filter((path) => EXCLUSIVE.test(path));
  const texts = await Promise.all(others.map(read));
  const uml = others.filter((_, at) => texts[at]!.includes(IN_UML));
  const waiting = others.filter((path) => WAITING.includes(path));
  const unhurried = others.filter((path) => UNHURRIED.includes(path) || UNHURRIED_FOLDERS.test(path));
  const placed = new Set([...uml, ...waiting, ...unhurried]);
  const rank = (path: string): number => (UML_FIRST.indexOf(path) + 1) || Infinity;
  const needsApiServer = (path: string): boolean => texts[others.indexOf(path)]!.includes(WITH_API_SERVER);
  const exclusive = others.filter((path) => !placed.has(path));
  return {
    shared,
    // kapi is built meanwhile.
    exclusive: [...exclusive.filter((path) => !needsApiServer(path)), ...exclusive.filter(needsApiServer)],
    unhurried,
    waiting,
    uml: uml.toSorted((left, right) => rank(left) < rank(right) ? -1 : rank(left) > rank(right) ? 1 : 0),
    withApiServer: texts.some((text) => text.includes(WITH_API_SERVER)),
  };
}

/** Builds kapi, etcd and Helm ahead. If that fails, tests that need them build them again, and report why. */
async function buildApiServer(): Promise<void> {
  if (KAPI.some((wanted) => unmet(wanted) !== undefined)) return;
  await buildKapi().then(buildEtcd).then(buildHelm)
    .catch((error) => writeLine(`kapi is not built: ${error}`));
}

/** Number of files from which building the bundle first pays, as tests start kproxy so often. */
const WORTH_A_BUNDLE = 20;

/** Builds the bundle that tests start instead of the source, into this folder. */
async function buildTestBundle(folder: string): Promise<void> {
  const commit = (await buildCommit()).replace("-dirty", "");
  await writeBundle(await bundle(commit), folder);
  // Some tests start kproxy as another user.
  await Deno.chmod(folder, 0o755);
}

function print(bytes: Uint8Array): void {
  for (let rest = bytes; rest.length > 0;) rest = rest.subarray(Deno.stdout.writeSync(rest));
}

/** Options of one lane's run. */
interface LaneOptions {
  /** Further flags of `deno test`. */
  readonly flags: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** Nice value. @default {0} */
  readonly nice?: number;
  /** Receives output as it arrives. @default {print} */
  readonly show?: (bytes: Uint8Array) => void;
}

/** Counts and output of one run. */
interface TestRun {
  readonly counts: Counts;
  readonly output: string;
}

/** Test processes that run; they are ended with this program. */
const running = new Set<Deno.ChildProcess>();

/** On a signal, ends the test processes before this program. */
function endTogether(signal: "SIGINT" | "SIGTERM"): void {
  const end = (): void => {
    running.forEach((child) => child.kill("SIGTERM"));
    Deno.removeSignalListener(signal, end);
    Deno.kill(Deno.pid, signal);
  };
  Deno.addSignalListener(signal, end);
}

/** Runs tests, with types unchecked: `deno task check` does that once for all. */
async function runTests(
  files: readonly string[],
  { flags, environment, nice = 0, show = print }: LaneOptions,
): Promise<TestRun> {
  if (files.length === 0) return { counts: { passed: 0, failed: 0, skipped: 0 }, output: "" };
  const colors: Record<string, string> = Deno.stdout.isTerminal() && !Deno.noColor
    ? { FORCE_COLOR: "1" }
    : { NO_COLOR: "1" };
  const argv = [Deno.execPath(), "test", "-A", "--no-check", "--permit-no-files", ...flags, ...files];
  const child = new Deno.Command("nice", {
    args: ["-n", `${nice}`, ...argv],
    cwd: ROOT,
    env: { ...colors, ...environment },
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  running.add(child);
  const timer = setTimeout(() => {
    writeLine(`Still running after ${TIMEOUT_MS / 60_000} minutes: stopped`);
    child.kill("SIGKILL");
  }, TIMEOUT_MS);
  const decoder = new TextDecoder();
  let output = "";
  for await (const chunk of child.stdout) {
    output += decoder.decode(chunk, { stream: true });
    show(chunk);
  }
  const { success } = await child.status;
  clearTimeout(timer);
  running.delete(child);
  return { counts: countRun(output, success), output };
}

/** Runs all lanes, each at its time. */
async function runLanes(
  { shared, exclusive, unhurried, waiting, uml }: Lanes,
  { lane, built }: { readonly lane: LaneOptions; readonly built: Promise<void> },
): Promise<readonly TestRun[]> {
  const runs: TestRun[] = [];
  let isExclusiveDone = false;
  const held: Uint8Array[][] = [];
  // Output of parallel lanes would mix: theirs is held back until they and the exclusive ones are done.
  const beside = async (files: readonly string[], options: Partial<LaneOptions> = {}): Promise<void> => {
    const said: Uint8Array[] = [];
    runs.push(await runTests(files, { ...lane, ...options, show: (bytes) => void said.push(bytes) }));
    if (isExclusiveDone) said.forEach(print);
    else held.push(said);
  };
  const queue = [...uml];
  const boot = async (processor: number): Promise<void> => {
    const environment = { ...lane.environment, UML_PROCESSOR: `${processor}` };
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      await beside([file], { environment });
    }
  };
  const first = boot(0);
  const recorded = lane.environment[RECORDED_VARIABLE] ?? "";
  const recording = { ...lane.environment, [RECORD_VARIABLE]: recorded };
  runs.push(
    await runTests(shared, { ...lane, environment: recording, flags: ["--parallel", ...lane.flags] }),
  );
  if (recorded !== "") await Deno.writeTextFile(`${recorded}/${RECORDED}`, "");
  const others = [beside(unhurried, { nice: UNHURRIED_NICE }), built.then(() => beside(waiting))];
  runs.push(await runTests(exclusive, lane));
  isExclusiveDone = true;
  held.flat().forEach(print);
  await Promise.all([first, boot(1), ...others]);
  return runs;
}

/** Files with failed tests in the output of `deno test`. */
export function failedFiles(output: string): string[] {
  // deno-lint-ignore no-control-regex -- colours begin with an escape character.
  const [printed = ""] = output.replace(/\x1b\[[0-9;]*m/g, "").split("\n ERRORS \n");
  return printed.split(/^running \d+ tests? from /m).slice(1).flatMap((block) =>
    / FAILED \(/.test(block) ? [(block.split("\n")[0] ?? "").replace(/^\.\//, "")] : []
  );
}

/** If more files fail, a busy machine is not the reason. */
const MOST_ALONE = 3;

/**
 * Repeats the few files that failed beside others, one after another and with nothing beside them: their timing needs an idle
 * machine. A failure then counts; each repeated file is printed.
 */
async function tryAlone(runs: readonly TestRun[], lane: LaneOptions): Promise<readonly TestRun[]> {
  const failed = runs.map(({ counts, output }) => counts.failed > 0 ? failedFiles(output) : []);
  const files = failed.flat();
  const isExplained = runs.every(({ counts }, at) => counts.failed === 0 || failed[at]!.length > 0);
  if (files.length > MOST_ALONE || !isExplained) return runs;
  const tried: TestRun[] = [];
  for (const [at, run] of runs.entries()) {
    const again: TestRun[] = [];
    for (const file of failed[at]!) {
      writeLine(`Failed beside other tests, once more alone: ${file}`);
      again.push(await runTests([file], lane));
    }
    tried.push(again.length === 0 ? run : afterTry(run, again));
  }
  return tried;
}

/** Result of a run whose failed files were all repeated. */
export function afterTry({ counts, output }: TestRun, again: readonly TestRun[]): TestRun {
  const failed = again.reduce((sum, one) => sum + one.counts.failed, 0);
  const passed = Math.max(0, counts.passed + counts.failed - failed);
  return {
    counts: { ...counts, passed, failed },
    output: failed === 0 ? "" : `${output}${again.map(({ output }) => output).join("")}`,
  };
}

/** Repeats the failures: the end of a long log is what people read first. */
function failureReport(outputs: readonly string[]): string[] {
  const errors = outputs.flatMap((output) => testFailures(output).errors);
  if (errors.length === 0) return [];
  return ["What failed:", ...errors.map((error) => `${withoutMiddle(error, TOLD_AGAIN)}\n`)];
}

/** Sum of the runs. In CI, a test that is ignored without a reason counts as failed. */
export function total(runs: readonly Counts[], explainedSkips: number, ci: boolean): Counts {
  const sum = (pick: (counts: Counts) => number): number =>
    runs.reduce((total, counts) => total + pick(counts), 0);
  const skipped = sum((counts) => counts.skipped);
  const unexplained = Math.max(0, skipped - explainedSkips);
  return {
    passed: sum((counts) => counts.passed),
    failed: sum((counts) => counts.failed) + (ci ? unexplained : 0),
    skipped,
  };
}

/** A random seed for cases that no run has tried, or the seed in the environment; `""`: none, because this is not CI. */
function drawnSeed(): string {
  const wanted = Deno.env.get(DRAWN_SEED_VARIABLE);
  if (wanted !== undefined || Deno.env.get("CI") !== "true") return wanted ?? "";
  return `${Math.floor(Math.random() * 0x7fffffff)}`;
}

/** Report of skipped tests by reason, and of the number ignored without one. */
export function skipReport(skips: readonly Skip[], skipped: number): string[] {
  const lines = [...Map.groupBy(skips, ({ reason }) => reason)].flatMap(([reason, tests]) => [
    `Skipped, ${tests.length} ${tests.length === 1 ? "test" : "tests"}: ${reason}`,
    ...tests.map(({ test }) => `  ${test}`),
  ]);
  const unexplained = skipped - skips.length;
  if (unexplained > 0) {
    lines.push(`Ignored without a reason: ${unexplained} (use e2eTest of tests/support/skip.ts)`);
  }
  return lines;
}

if (import.meta.main) {
  endTogether("SIGINT");
  endTogether("SIGTERM");
  await installPackages(TEST_PACKAGES);
  const { files, filter } = await chooseTests(Deno.args);
  const byName = filter === undefined ? [] : [`--filter=${filter}`];
  const seed = drawnSeed();
  if (seed !== "") writeLine(`Every tenth case of a law is of a seed drawn for this run: ${seed}`);
  const skipFile = await Deno.makeTempFile({ prefix: "kproxy-skips-" });
  const bundleFolder = await Deno.makeTempDir({ prefix: "kproxy-test-bundle-" });
  const recordFolder = await Deno.makeTempDir({ prefix: "kproxy-recorded-fakes-" });
  try {
    const withBundle = files.length >= WORTH_A_BUNDLE;
    if (withBundle) await buildTestBundle(bundleFolder);
    const lanes = await laneOf(files, (path) => Deno.readTextFile(`${ROOT}/${path}`));
    const built = lanes.withApiServer ? buildApiServer() : Promise.resolve();
    // The result is cached for all processes that this one starts.
    if (lanes.uml.length > 1) UML_NEEDS.forEach(unmet);
    const environment = {
      KPROXY_SKIPS: skipFile,
      [DRAWN_SEED_VARIABLE]: seed,
      ...(withBundle ? { [TEST_BUNDLE_VARIABLE]: bundleFolder } : {}),
      [RECORDED_VARIABLE]: Deno.args.length === 0 ? recordFolder : "",
    };
    const lane = { flags: byName, environment };
    const first = await runLanes(lanes, { lane, built });
    const skips = await readSkips(skipFile, filter);
    const runs = await tryAlone(first, lane);
    const counts = total(runs.map(({ counts }) => counts), skips.length, Deno.env.get("CI") === "true");
    skipReport(skips, counts.skipped).forEach(writeLine);
    failureReport(runs.map(({ output }) => output)).forEach(writeLine);
    writeLine(summaryLine(counts));
    if (counts.failed > 0 || counts.passed === 0) Deno.exitCode = 1;
  } finally {
    await Deno.remove(skipFile);
    await Deno.remove(bundleFolder, { recursive: true });
    await Deno.remove(recordFolder, { recursive: true });
  }
}
