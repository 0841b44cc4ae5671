/**
 * `deno task chaos --mode M [--minutes N] [--seed S [--last-seed S]] [--log FILE]`: random changes and faults on a node of its own, with clients that
 * connect to Services which must not notice. It prints the seed, and at the end what happened; `--log FILE` takes every event as it
 * goes, `--verbose` prints them. `--without "WORDS,WORDS"` leaves out the faults with these words in their names; everything else
 * happens as it would with them. `--soak` leaves out those that end kproxy and fails if its descriptors or its memory grow; `--record
 * FILE` writes down what came of it, as JSON.
 *
 * Exit status: 0 if all was as it should be, 1 if not, 2 for wrong use. Mode ipvs runs in the user-mode Linux where this kernel has no
 * IPVS.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { ProgressLine } from "../support/progress_line.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { ROOT } from "../../tools/project_files.ts";
import { buildCommit } from "../../tools/release/commit.ts";
import { installPackages, TEST_PACKAGES } from "../../tools/setup.ts";
import { errorTerminal } from "../../tools/terminal.ts";
import { CHAOS_MODES, type ChaosModeName } from "./mode.ts";
import { type ChaosReport, type FaultReport, runChaos } from "./run.ts";
import { ENDING_FAULTS, Soak, type SoakRecord } from "./soak.ts";

const FLAGS = {
  string: ["mode", "minutes", "seed", "last-seed", "log", "without", "record"],
  boolean: ["here", "verbose", "soak"],
} as const;
const MAX_SEED = 1_000_000;
/** What a user-mode Linux takes to start and to end beside the run, in seconds. */
const BOOT_SECONDS = 600;

interface Options {
  readonly mode: ChaosModeName;
  readonly minutes: number;
  readonly seed: number;
  /** Of the steps in the last tenth of the time. */
  readonly lastSeed: number;
  /** A file for every event; `""` for none. */
  readonly log: string;
  readonly verbose: boolean;
  /** Faults whose names hold these words do not happen; `""` for all do. */
  readonly without: string;
  readonly soak: boolean;
  /** A file for what came of a soak; `""` for none. */
  readonly record: string;
  /** Do not go into a user-mode Linux. */
  readonly here: boolean;
}

/** @throws {TypeError} that says what is wrong */
function parse(args: readonly string[]): Options {
  const unknown: string[] = [];
  const values = parseArgs([...args], {
    ...FLAGS,
    unknown: (arg) => {
      unknown.push(arg);
      return false;
    },
  });
  const { mode, minutes = "3", seed, log = "", record = "", without = "", here, verbose, soak } = values;
  if (unknown.length > 0) throw new TypeError(`what is ${unknown.join(" ")}?`);
  const chosen = CHAOS_MODES.find((name) => name === mode);
  if (chosen === undefined) throw new TypeError(`--mode must be one of ${CHAOS_MODES.join(", ")}`);
  if (!(Number(minutes) > 0)) throw new TypeError("--minutes must be a number above 0");
  const chosenSeed = seed === undefined ? Math.floor(Math.random() * MAX_SEED) : Number(seed);
  const lastSeed = Number(values["last-seed"] ?? chosenSeed);
  if (!Number.isInteger(chosenSeed) || !Number.isInteger(lastSeed)) {
    throw new TypeError("--seed and --last-seed must be whole numbers");
  }
  if (record !== "" && !soak) throw new TypeError("--record is for --soak");
  return {
    ...{ mode: chosen, minutes: Number(minutes), seed: chosenSeed, lastSeed, log },
    ...{ here, verbose, without, soak, record },
  };
}

/** For people, and for docs/reliability.md. */
export function reportLines(report: ChaosReport): string[] {
  const faults = Object.entries(report.faults).sort(([, a], [, b]) => b.times - a.times);
  const sum = (of: (one: FaultReport) => number): number =>
    faults.reduce((total, [, one]) => total + of(one), 0);
  return [
    `mode ${report.mode}, seed ${report.seed}: ${
      report.minutes.toFixed(1)
    } minutes, ${report.steps} steps, ${report.changes} changes, ` +
    `${sum(({ times }) => times)} faults, ${report.starts} starts of kproxy` +
    (report.failedStarts === 0 ? "" : `, ${report.failedStarts} of them ended by tools that misbehaved`),
    `${report.connections} connections: ${sum(({ connections }) => connections)} failed in the ` +
    `${(report.damagedMs / 1000).toFixed(1)} s in which somebody else had taken rules away`,
    `rules equal to a fresh start's, and packets faring as objects say: ${report.comparisons} times`,
    ...faults.map(([name, fault]) =>
      `  ${String(fault.times).padStart(4)} × ${name}${costOf(fault, report)}`
    ),
  ];
}

/** A fault that is no damage costs nothing: a connection that failed by it would be among the problems. */
function costOf({ connections, longestMs }: FaultReport, { repairMs }: ChaosReport): string {
  if (connections === 0) return ": no time without service";
  return `: ${connections} connections failed, the last ${longestMs} ms after it (at most ${repairMs} ms, ` +
    "or as long after what hindered its repair)";
}

/** How to have the same again. */
function againLine({ mode, minutes, seed, lastSeed, without, soak }: Options): string {
  const last = lastSeed === seed ? "" : ` --last-seed ${lastSeed}`;
  const rest = `${last}${without === "" ? "" : ` --without "${without}"`}${soak ? " --soak" : ""}`;
  return `deno task chaos --mode ${mode} --minutes ${minutes} --seed ${seed}${rest}`;
}

async function inUml(options: Options): Promise<number> {
  const { mode, minutes, seed, lastSeed, log, verbose, without, soak, record } = options;
  const args = [
    `--mode=${mode}`,
    `--minutes=${minutes}`,
    `--seed=${seed}`,
    `--last-seed=${lastSeed}`,
    `--log=${log}`,
    `--without=${without}`,
    "--here",
  ].concat(
    verbose ? ["--verbose"] : [],
    soak ? ["--soak", `--record=${record}`] : [],
  );
  const inside = `"${Deno.execPath()}" run -A --no-check tests/chaos/chaos.ts ${
    args.map((arg) => `"${arg}"`).join(" ")
  }`;
  const { code } = await new Deno.Command(`${ROOT}/tests/lab/uml.sh`, {
    args: [inside],
    cwd: ROOT,
    stdin: "null",
    env: { UML_TIMEOUT: String(Math.ceil(minutes * 60) + BOOT_SECONDS) },
  }).spawn().status;
  return code;
}

async function hasIpvs(): Promise<boolean> {
  const { success } = await new Deno.Command("modprobe", { args: ["-q", "ip_vs"], stdin: "null" }).output();
  return success;
}

/** Runs; a terminal shows how far it is. */
async function runShown(
  options: Options,
  soak: Soak | undefined,
  log: (line: string) => void,
): Promise<ChaosReport> {
  const { minutes, verbose } = options;
  const without = options.without + (soak === undefined ? "" : `,${ENDING_FAULTS}`);
  // The lines of --verbose say more, and would be mixed with it.
  await using line = new ProgressLine(verbose ? null : errorTerminal(), minutes * 60_000);
  return await runChaos({
    ...options,
    without: without.split(",").filter((words) => words !== ""),
    soak,
    log,
    onStep: ({ ms, steps, faults }) => line.reach(ms, `${steps} steps, ${faults} faults`),
  });
}

async function writeRecord(
  options: Options,
  { commit, report, soak }: { readonly commit: string; readonly report: ChaosReport; readonly soak: Soak },
): Promise<void> {
  const { faults, problems: _, repairMs: __, ...rest } = report;
  const record: SoakRecord = {
    command: againLine(options),
    commit,
    date: new Date().toISOString().slice(0, 10),
    machine: {
      kernel: Deno.osRelease(),
      cpus: navigator.hardwareConcurrency,
      memoryGb: Math.round(Deno.systemMemoryInfo().total / 1e9),
      load: Deno.loadavg(),
    },
    report: { ...rest, faults: Object.values(faults).reduce((sum, { times }) => sum + times, 0) },
    samples: soak.samples,
  };
  await Deno.writeTextFile(options.record, `${JSON.stringify(record, null, 2)}\n`);
}

async function main(): Promise<number> {
  let options: Options;
  try {
    options = parse(Deno.args);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    writeErrorLine(error.message);
    return 2;
  }
  if (!options.here) await installPackages(TEST_PACKAGES);
  if (options.mode === "ipvs" && !options.here && !await hasIpvs()) return await inUml(options);
  writeLine(`Chaos in mode ${options.mode}, ${options.minutes} minutes, seed ${options.seed}`);
  using file = options.log === "" ? undefined : await Deno.open(options.log, { create: true, append: true });
  const encoder = new TextEncoder();
  const log = (line: string): void => {
    if (options.verbose) writeLine(line);
    file?.writeSync(encoder.encode(`${line}\n`));
  };
  const soak = options.soak ? new Soak() : undefined;
  const commit = options.record === "" ? "" : await buildCommit();
  const report = await runShown(options, soak, log);
  if (soak !== undefined && options.record !== "") await writeRecord(options, { commit, report, soak });
  for (const line of reportLines(report)) writeLine(line);
  for (const problem of report.problems) writeLine(`WRONG: ${problem}`);
  if (report.problems.length === 0) return 0;
  writeLine(`Again: ${againLine(options)}`);
  return 1;
}

if (import.meta.main) Deno.exit(await main());
