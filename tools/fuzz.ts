/**
 * Fuzzes parsers for some minutes, each target in separate processes.
 *
 * deno task fuzz [TARGET]... [--minutes N] [--seed N] [--keep]
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { LineReader } from "../tests/bench/line_reader.ts";
import { cpuTicks } from "../tests/bench/process_costs.ts";
import type { CampaignOrder, CampaignReport } from "../tests/fuzz/campaign.ts";
import { type Find, readKept, TARGETS, writeKept } from "../tests/fuzz/corpus.ts";
import { seedOf } from "../tests/support/fast_check.ts";
import { readUnlessGone } from "../tests/support/processes.ts";
import { keepFuzzRun } from "./fuzz_record.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { ROOT } from "./project_files.ts";

const MINUTES = 1;
const MAX_SEED = 0x7fffffff;
/** Heap limit. Inputs are at most 1 MiB: a reader that needs more memory is not bounded by its input. */
const HEAP_MB = 256;
/** Ticks of processor time without a report. 100 ticks are a second; wall time depends on other programs. */
const MOST_SILENT_TICKS = 3_000;
const LOOK_MS = 2_000;
/** Limits of kept inputs per target: together they are a file that can be reviewed. */
const MOST_KEPT = 60;
const MOST_KEPT_BYTES = 1_000;

/** Result of one process, or of all of a target. */
interface Outcome {
  readonly inputs: number;
  readonly blocks: number;
  readonly seconds: number;
  readonly finds: readonly Find[];
  readonly kept: readonly string[];
}

/** Starts one process, and collects its reports until it ends, or hangs. */
async function campaign(order: CampaignOrder): Promise<Outcome> {
  const startMs = performance.now();
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-A", "--no-check", `--v8-flags=--max-old-space-size=${HEAP_MB}`],
      `${ROOT}/tests/fuzz/campaign.ts`,
      JSON.stringify(order),
    ],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const watch = new SilenceWatch(child);
  const stderr = new Response(child.stderr).text();
  const finds: Find[] = [];
  let last: CampaignReport = { inputs: 0, blocks: 0 };
  const lines = new LineReader(child.stdout);
  for (let line = await lines.next(); line !== null; line = await lines.next()) {
    watch.heard();
    last = JSON.parse(line);
    if (last.find !== undefined) finds.push(last.find);
  }
  const { success, code } = await child.status;
  watch.end();
  if (!success) {
    const said = (await stderr).split("\n").filter((line) => /fatal|error|overflow/i.test(line)).slice(0, 3)
      .join(" ");
    const was = watch.hasHung ? "did not end" : `ended the process with status ${code}: ${said}`;
    finds.push({ was, input: JSON.parse(await Deno.readTextFile(order.inputFile)) });
  }
  const seconds = (performance.now() - startMs) / 1_000;
  return { inputs: last.inputs, blocks: last.blocks, seconds, finds, kept: last.kept ?? [] };
}

/** Kills a process that reports nothing for too much processor time. */
class SilenceWatch {
  hasHung = false;
  readonly #timer: ReturnType<typeof setInterval>;
  #heardTicks = 0;
  #isHeard = true;

  constructor(child: Deno.ChildProcess) {
    this.#timer = setInterval(async () => {
      const stat = await readUnlessGone(`/proc/${child.pid}/stat`);
      if (stat === "") return;
      const { user, system } = cpuTicks(stat);
      if (this.#isHeard) this.#heardTicks = user + system;
      this.#isHeard = false;
      if (user + system - this.#heardTicks < MOST_SILENT_TICKS) return;
      this.hasHung = true;
      child.kill("SIGKILL");
      this.end();
    }, LOOK_MS);
  }

  heard(): void {
    this.#isHeard = true;
  }

  end(): void {
    clearInterval(this.#timer);
  }
}

/** Fuzzes with small inputs for three quarters of the time, then with large ones; a crash ends one process only. */
async function fuzz(target: string, { minutes, seed }: { minutes: number; seed: number }): Promise<Outcome> {
  const inputFile = await Deno.makeTempFile({ prefix: "kproxy-fuzz-" });
  const outcomes: Outcome[] = [];
  try {
    for (const [size, share] of [["small", 0.75], ["large", 0.25]] as const) {
      const endMs = performance.now() + minutes * 60_000 * share;
      for (let left = endMs - performance.now(); left > 0; left = endMs - performance.now()) {
        const order = { target, size, seconds: left / 1_000, seed: seed + outcomes.length, inputFile };
        outcomes.push(await campaign(order));
      }
    }
  } finally {
    await Deno.remove(inputFile);
  }
  const finds = new Map(
    outcomes.flatMap((outcome) => outcome.finds).map((find) => [find.was.split(": ", 1)[0], find]),
  );
  const sum = (pick: (outcome: Outcome) => number): number =>
    outcomes.reduce((total, one) => total + pick(one), 0);
  return {
    inputs: sum((outcome) => outcome.inputs),
    blocks: Math.max(...outcomes.map((outcome) => outcome.blocks)),
    seconds: sum((outcome) => outcome.seconds),
    finds: [...finds.values()],
    kept: outcomes.flatMap((outcome) => outcome.kept),
  };
}

async function keep(target: string, { finds, kept }: Outcome): Promise<void> {
  const known = await readKept(target);
  const short = kept.filter((input) => input.length <= MOST_KEPT_BYTES);
  const inputs = [...new Set([...known.inputs, ...short])];
  await writeKept(target, { finds: [...known.finds, ...finds], inputs: inputs.slice(0, MOST_KEPT) });
}

async function main(args: readonly string[]): Promise<number> {
  const options = parseArgs([...args], { string: ["minutes", "seed", "_"], boolean: ["keep"] });
  const minutes = Number(options.minutes ?? MINUTES);
  if (!(minutes > 0)) throw new TypeError(`--minutes must be a number above 0, not "${options.minutes}"`);
  const seed = options.seed === undefined ? Math.floor(Math.random() * MAX_SEED) : seedOf(options.seed);
  const names = TARGETS.map(({ name }) => name);
  const wanted = options._.length === 0 ? names : options._.map(String);
  for (const name of wanted) {
    if (!names.includes(name)) throw new TypeError(`No target is called "${name}": ${names.join(", ")}`);
  }
  writeLine(`${wanted.length} targets, ${minutes} minutes each, seed ${seed}`);
  let found = 0;
  for (const name of wanted) {
    const outcome = await fuzz(name, { minutes, seed });
    const { inputs, seconds, blocks, finds, kept } = outcome;
    writeLine(
      `${name}: ${inputs} inputs in ${Math.round(seconds)} s (${Math.round(inputs / seconds)}/s), ` +
        `${blocks} blocks, ${kept.length} inputs that ran new blocks, ${finds.length} finds`,
    );
    for (const { was, input } of finds) writeLine(`  ${was}\n  ${JSON.stringify(input).slice(0, 2_000)}`);
    found += finds.length;
    if (!options.keep) continue;
    await keep(name, outcome);
    await keepFuzzRun({ target: name, minutes, seed, inputs, blocks, finds: finds.map(({ was }) => was) });
  }
  return found === 0 ? 0 : 1;
}

if (import.meta.main) {
  try {
    Deno.exitCode = await main(Deno.args);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    writeErrorLine(error.message);
    Deno.exitCode = 2;
  }
}
