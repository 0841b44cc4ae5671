/**
 * `deno task mutate --generic [--seed N] [--sample N] [--beside] [PATH…]`: flips operators and conditions of the code that decides, one at a
 * time in a copy of the project, and asks that a test notices: first the tests beside the file, then those around it. Survivors
 * are printed with what `explained.ts` says of them; one that it does not know ends the task with 1.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { parseArgs } from "@std/cli/parse-args";
import { copyProject } from "../copy_project.ts";
import { writeErrorLine, writeLine } from "../output.ts";
import { projectFiles, ROOT } from "../project_files.ts";
import { explain } from "./explained.ts";
import { type Outcome, reportLines, survivorLine } from "./report.ts";
import { COPIED, roomOf, ROOMS, testsAround, testsBeside } from "./rooms.ts";
import { findFlips, type Flip, writeFlips } from "./source_flips.ts";
import { tryFlips, type Verdict } from "./try_flips.ts";

/** Of random tests beside the file; what survives meets them all, as often as they try otherwise. */
const QUICK_TRIES = 20;

/** What the words ask for. */
interface Wish {
  readonly seed: number;
  /** Null for all. */
  readonly sample: number | null;
  /** True if only the tests beside a file are asked, which takes a small part of the time and explains nothing. */
  readonly besideOnly: boolean;
  /** Files or folders, relative to the project. */
  readonly paths: readonly string[];
}

/** What went wrong with the words; the task ends with 2. */
class WishError extends Error {}

function wishOf(words: readonly string[]): Wish {
  const unknown: string[] = [];
  const args = parseArgs([...words], {
    boolean: ["generic", "beside"],
    string: ["seed", "sample"],
    unknown: (word) => {
      if (!word.startsWith("-")) return true;
      unknown.push(word);
      return false;
    },
  });
  if (unknown.length > 0) throw new WishError(`Unknown: ${unknown.join(" ")}`);
  const count = (name: "seed" | "sample"): number | null => {
    const text = args[name];
    if (text === undefined) return null;
    if (!/^[0-9]{1,9}$/.test(text)) {
      throw new WishError(`--${name} wants a number, not ${JSON.stringify(text)}`);
    }
    return Number(text);
  };
  const paths = args._.map((word) => String(word).replace(/\/+$/, ""));
  return {
    seed: count("seed") ?? 1,
    sample: count("sample"),
    besideOnly: args.beside,
    paths: paths.length === 0 ? ROOMS : paths,
  };
}

function sourcesIn(paths: readonly string[], files: readonly string[]): string[] {
  const sources = files.filter((file) => /^lib\/.*\.ts$/.test(file) && !/(_test|\.d)\.ts$/.test(file));
  const isIn = (file: string, path: string): boolean => file === path || file.startsWith(`${path}/`);
  for (const path of paths) {
    if (!sources.some((file) => isIn(file, path))) throw new WishError(`No sources of lib are in ${path}`);
  }
  return sources.filter((file) => paths.some((path) => isIn(file, path)));
}

/** So many of the flips, by chance: what is chosen hangs on seed and keys only, so that other changes of a file do not matter. */
function sampleOf(flips: readonly Flip[], sample: number | null, seed: number): Flip[] {
  if (sample === null || sample >= flips.length) return [...flips];
  const rank = (flip: Flip): string => createHash("sha256").update(`${seed} ${flip.key}`).digest("hex");
  const ranks = new Map(flips.map((flip) => [flip, rank(flip)]));
  const order = [...flips].sort((a, b) => (ranks.get(a) as string) < (ranks.get(b) as string) ? -1 : 1);
  const chosen = new Set(order.slice(0, sample));
  return flips.filter((flip) => chosen.has(flip));
}

/** Changes a copy of the project so that each flip can be switched on by its place in the list, from 1. */
async function flipCopy(folder: string, flips: readonly Flip[]): Promise<void> {
  const numbers = new Map(flips.map((flip, index) => [flip.key, index + 1]));
  for (const file of new Set(flips.map((flip) => flip.file))) {
    const text = await Deno.readTextFile(`${folder}/${file}`);
    const flipped = writeFlips(file, text, ({ key }) => numbers.get(key) ?? null);
    await Deno.writeTextFile(`${folder}/${file}`, flipped);
  }
}

/** All flips of one run, and how they end. */
class GenericRun {
  readonly outcomes = new Map<Flip, Outcome>();

  constructor(
    private readonly flips: readonly Flip[],
    private readonly files: readonly string[],
    private readonly workers: number,
    private readonly besideOnly: boolean,
    private readonly stop: AbortSignal,
  ) {}

  async run(folder: string): Promise<void> {
    for (const room of new Set(this.flips.map(({ file }) => roomOf(file)))) {
      const flips = this.flips.filter(({ file }) => roomOf(file) === room);
      await this.#suite(folder, "beside", testsBeside(room, this.files), flips);
    }
    if (this.besideOnly) return;
    const around = new Map<string, Flip[]>();
    for (const flip of this.flips) {
      if (this.outcomes.get(flip)?.verdict.kind === "killed") continue;
      const tests = testsAround(roomOf(flip.file), this.files).join(" ");
      around.set(tests, [...around.get(tests) ?? [], flip]);
    }
    for (const [tests, flips] of around) await this.#suite(folder, "around", tests.split(" "), flips);
  }

  async #suite(
    folder: string,
    stage: Outcome["stage"],
    tests: readonly string[],
    flips: readonly Flip[],
  ): Promise<void> {
    const tell = (flip: Flip, verdict: Verdict): void => {
      const outcome: Outcome = { flip, stage, verdict, explained: explain(flip) };
      this.outcomes.set(flip, outcome);
      const isLast = stage === "around" || this.besideOnly;
      if (isLast && verdict.kind !== "killed" && outcome.explained === null) {
        writeLine(`UNNOTICED ${survivorLine(outcome)}`);
      }
    };
    if (tests.length === 0) {
      for (const flip of flips) tell(flip, { kind: "unreached" });
      return;
    }
    if (flips.length === 0) return;
    const start = performance.now();
    await tryFlips({ folder, flips: flips.map((flip) => this.flips.indexOf(flip) + 1) }, {
      files: tests,
      tries: stage === "beside" ? QUICK_TRIES : 0,
      workers: this.workers,
      stop: this.stop,
      onVerdict: (number, verdict) => tell(this.flips[number - 1] as Flip, verdict),
      onInvalid: (test, failure) =>
        writeLine(`left out, as it fails without a flip: ${test}: ${failure.split("\n")[0]}`),
    });
    const killed = flips.filter((flip) => this.outcomes.get(flip)?.verdict.kind === "killed").length;
    const seconds = Math.round((performance.now() - start) / 1_000);
    writeLine(
      `${
        roomOf((flips[0] as Flip).file)
      }, tests ${stage}: ${killed} of ${flips.length} noticed, ${seconds} s`,
    );
  }
}

/** Yields the exit code: 0 if every flip is noticed or explained. */
export async function tryGenericFlips(
  words: readonly string[],
  workers: number,
  stop: AbortSignal,
): Promise<number> {
  try {
    const wish = wishOf(words);
    const files = await projectFiles();
    const all: Flip[] = [];
    for (const file of sourcesIn(wish.paths, files)) {
      all.push(...findFlips(file, await Deno.readTextFile(`${ROOT}/${file}`)));
    }
    const flips = sampleOf(all, wish.sample, wish.seed);
    writeLine(
      `${flips.length} of ${all.length} flips${flips.length < all.length ? `, seed ${wish.seed}` : ""}`,
    );
    const run = new GenericRun(flips, files, workers, wish.besideOnly, stop);
    const folder = await copyProject(COPIED);
    try {
      await flipCopy(folder, flips);
      await run.run(folder);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
    const outcomes = [...run.outcomes.values()];
    for (const line of reportLines(outcomes)) writeLine(line);
    return outcomes.every(({ verdict, explained }) => verdict.kind === "killed" || explained !== null)
      ? 0
      : 1;
  } catch (error) {
    if (!(error instanceof WishError)) throw error;
    writeErrorLine(error.message);
    return 2;
  }
}
