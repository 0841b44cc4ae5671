/**
 * The gate against getting slower, `deno task slower`: the bundle of these sources beside that of the last merged commit, in turns on
 * the same machine, in mode nftables. It fails if one of these is worse by more than a tenth in every round: processor time of a first
 * sync at 1,000 × 10, programs included, and resident memory at 100 × 10. What can be counted, programs of a start and bytes that they are
 * fed with, is counted once for each mode. Needs root.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import { ROOT } from "../../tools/project_files.ts";
import { git } from "../../tools/release/commit.ts";
import { median } from "../../tools/figures/samples.ts";
import { inBenchFolder, inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import type { BenchMode } from "./mode.ts";
import { IPTABLES_MODE } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";
import { RecordedPrograms } from "./recorded_programs.ts";

/** A figure of two builds: one value for each round, the same rounds. */
export interface Pair {
  readonly what: string;
  readonly unit: string;
  readonly before: readonly number[];
  readonly now: readonly number[];
}

const MOST = 1.1;
const ROUNDS = 5;
const LARGE: ClusterSize = { services: 1000, endpoints: 10 };
const SMALL: ClusterSize = { services: 100, endpoints: 10 };
const TIMEOUT_MS = 60_000;
/** What comes right after a first sync belongs to neither figure's noise. */
const REST_MS = 300;

/** Whether it is worse by more than a tenth in every round. */
export function isWorse({ before, now }: Pair): boolean {
  return now.length > 0 && now.every((value, round) => value > MOST * (before[round] ?? Infinity));
}

/** A line with both figures: medians, and all rounds. */
export function pairLine(pair: Pair): string {
  const told = (values: readonly number[]): string =>
    `${median(values)} ${pair.unit}${values.length > 1 ? ` (${values.join(", ")})` : ""}`;
  const verdict = isWorse(pair)
    ? `SLOWER: worse by more than ${Math.round(100 * (MOST - 1))} % in every round`
    : "fine";
  return `${pair.what}: before ${told(pair.before)}, now ${told(pair.now)}: ${verdict}`;
}

/** What to compare with: a commit, or why there is none. */
export type Base = { readonly commit: string; readonly why: string } | { readonly missing: string };

/**
 * The last merged commit, as far as the repository tells: `origin/main` if what is checked out comes from it, the commit where both
 * parted if not, and the commit before the newest one if there is no other (as where `origin/main` is checked out itself).
 */
export async function landedCommit(root: string): Promise<Base> {
  const head = await git(root, "rev-parse", "--verify", "-q", "HEAD");
  if (head === undefined) return { missing: "there is no history: this is no clone, or git is not here" };
  const main = await git(root, "rev-parse", "--verify", "-q", "origin/main");
  const fork = main === undefined ? undefined : await git(root, "merge-base", main, head);
  if (fork !== undefined && fork !== head) {
    return { commit: fork, why: fork === main ? "origin/main" : "where this left origin/main" };
  }
  const parent = await git(root, "rev-parse", "--verify", "-q", "HEAD~1");
  if (parent !== undefined) return { commit: parent, why: "the commit before the newest one" };
  return { missing: "the history has one commit only, as a shallow clone has" };
}

async function run(argv: readonly string[], cwd: string): Promise<void> {
  const [program = "", ...args] = argv;
  const { success, stderr } = await new Deno.Command(program, { args, cwd, stdin: "null", stdout: "null" })
    .output();
  if (!success) throw new Error(`${argv.join(" ")} failed: ${new TextDecoder().decode(stderr).trim()}`);
}

/** The sources of a commit, or those that are here, as a bundle; resolves to its `kproxy.js`. */
async function build(sources: string): Promise<string> {
  await run([Deno.execPath(), "run", "-A", "tools/bundle.ts"], sources);
  return `${sources}/dist/kproxy-js/kproxy.js`;
}

async function sourcesOf(commit: string, folder: string): Promise<string> {
  const sources = `${folder}/landed`;
  await Deno.mkdir(sources);
  await run(["git", "-C", ROOT, "archive", "--format=tar", `--output=${folder}/landed.tar`, commit], ROOT);
  await run(["tar", "-xf", `${folder}/landed.tar`, "-C", sources], folder);
  return sources;
}

let count = 0;

/** Starts one build in a namespace of its own until all is served. */
async function served<T>(
  { mode, size, program, folder, path }: {
    readonly mode: BenchMode;
    readonly size: ClusterSize;
    readonly program: string;
    readonly folder: string;
    readonly path?: string;
  },
  work: (kproxy: KproxyProcess) => Promise<T>,
): Promise<T> {
  return await inBenchNetns(mode, async (netns) => {
    await using api = await FakeApi.start(netns, size, `${folder}/${count++}.sock`);
    await using kproxy = new KproxyProcess(netns, {
      ...{ master: api.url, mode: mode.proxyMode, program },
      ...path === undefined ? {} : { path },
    });
    await kproxy.allServed(TIMEOUT_MS);
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    return await work(kproxy);
  });
}

/** Measured in turns; who is first changes from round to round. */
async function inTurns(
  programs: readonly [before: string, now: string],
  measure: (program: string) => Promise<number>,
): Promise<Pick<Pair, "before" | "now">> {
  const values: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    for (const which of round % 2 === 0 ? [0, 1] as const : [1, 0] as const) {
      values[which].push(Math.round(10 * await measure(programs[which])) / 10);
    }
  }
  return { before: values[0], now: values[1] };
}

/** Programs of a start that write rules, and how many bytes. */
async function counted(
  mode: BenchMode,
  program: string,
  folder: string,
): Promise<{ programs: number; bytes: number }> {
  const programs = await RecordedPrograms.create(`${folder}/recorded-${count++}`);
  return await served({ ...{ mode, size: SMALL, program, folder }, path: programs.path }, async () => {
    // Neither lists nor dry runs (`nft -c`): when which of them runs depends on the moment.
    const runs = (await programs.since(0)).filter(({ argv, stdin }) => stdin !== "" && !argv.includes("-c"));
    return { programs: runs.length, bytes: runs.reduce((sum, { stdin }) => sum + stdin.length, 0) };
  });
}

/** One figure after the other. */
async function* pairs(
  programs: readonly [before: string, now: string],
  folder: string,
): AsyncGenerator<Pair> {
  for (const mode of [NFTABLES_MODE, IPTABLES_MODE]) {
    const [before, now] = [
      await counted(mode, programs[0], folder),
      await counted(mode, programs[1], folder),
    ];
    for (const unit of ["programs", "bytes"] as const) {
      yield {
        what: `A start at 100 × 10, mode ${mode.title}`,
        unit,
        before: [before[unit]],
        now: [now[unit]],
      };
    }
  }
  const mode = NFTABLES_MODE;
  const cpuMs = (program: string): Promise<number> =>
    served({ mode, size: LARGE, program, folder }, (kproxy) => kproxy.cpuMs());
  const residentMb = (program: string): Promise<number> =>
    served({ mode, size: SMALL, program, folder }, async (kproxy) => (await kproxy.memory()).nowMb);
  const what = "Processor time of a first sync at 1,000 × 10";
  yield { what, unit: "ms", ...await inTurns(programs, cpuMs) };
  yield { what: "Resident memory at 100 × 10", unit: "MB", ...await inTurns(programs, residentMb) };
}

if (import.meta.main) {
  const base: Base = Deno.uid() === 0
    ? await landedCommit(ROOT)
    : { missing: "only root can make network namespaces" };
  if ("missing" in base) {
    writeLine(`Not compared: ${base.missing}`);
    Deno.exit(0);
  }
  writeLine(`Compared with ${base.commit.slice(0, 9)}, ${base.why}`);
  await inBenchFolder(async (folder) => {
    const [before, now] = await Promise.all([sourcesOf(base.commit, folder).then(build), build(ROOT)]);
    const programs = [before, now] as const;
    for await (const pair of pairs(programs, folder)) {
      writeLine(pairLine(pair));
      if (isWorse(pair)) Deno.exitCode = 1;
    }
  });
}
