/**
 * Tries the laws on cases that no other run has tried: the tests that draw cases, round after round, with another seed in each.
 *
 * deno task explore [--rounds N] [--seed N] [PATH]...
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { DRAWN_SEED_VARIABLE, SEED_VARIABLE, seedOf } from "../tests/support/fast_check.ts";
import { writeErrorLine, writeLine } from "./output.ts";
import { ROOT } from "./project_files.ts";
import { chooseTests } from "./run_tests.ts";
import { testFailures } from "./test_failures.ts";

const ROUNDS = 10;
/** fast-check takes 32 bits. */
const MAX_SEED = 0x7fffffff;
/** In a test file, that it draws cases itself or has them drawn. */
const DRAWS = /\/(fast_check|fake_chaos)\.ts"/;
/** These need a machine of their own, and draw few. */
const ON_MACHINES = /^tests\/(e2e|lab|kernel|golden)\//;

/** What is tried. */
export interface Exploration {
  readonly files: readonly string[];
  readonly rounds: number;
  /** Of the first round; each of the others takes the next one. */
  readonly firstSeed: number;
  /** For a tenth as many cases beside those, as CI has them; `""` for none. @default {""} */
  readonly drawnSeed?: string;
}

/** All test files of the project that draw cases and need no machine, or those below the paths. @throws {TypeError} if nothing is there */
async function filesThatDraw(paths: readonly string[]): Promise<string[]> {
  const { files, filter } = await chooseTests(paths);
  if (filter !== undefined) throw new TypeError(`No test is below ${filter}`);
  const drawing: string[] = [];
  for (const path of files) {
    if (paths.length === 0 && ON_MACHINES.test(path)) continue;
    if (DRAWS.test(await Deno.readTextFile(`${ROOT}/${path}`))) drawing.push(path);
  }
  return drawing;
}

/** One round. @returns what `deno test` printed if a test failed, else null */
async function round(files: readonly string[], seed: number, drawnSeed: string): Promise<string | null> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["test", "-A", "--no-check", "--parallel", ...files],
    cwd: ROOT,
    env: { NO_COLOR: "1", [SEED_VARIABLE]: `${seed}`, [DRAWN_SEED_VARIABLE]: drawnSeed },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return success ? null : decoder.decode(stdout) + decoder.decode(stderr);
}

/** The file of a failed test, from `name => ./file_test.ts:1:6`; null if that is not what it says. */
function fileOf(name: string): string | null {
  return / => \.\/(\S+?):\d+:\d+$/.exec(name)?.[1] ?? null;
}

/**
 * Goes on after a failure: each round may find something else.
 *
 * @returns the seeds for which a test failed
 */
export async function explore(
  { files, rounds, firstSeed, drawnSeed = "" }: Exploration,
  say: (line: string) => void = writeLine,
): Promise<readonly number[]> {
  const found: number[] = [];
  for (let at = 0; at < rounds; at++) {
    const seed = (firstSeed + at) % MAX_SEED;
    const output = await round(files, seed, drawnSeed);
    say(`round ${at + 1} of ${rounds}, seed ${seed}: ${output === null ? "nothing found" : "FAILED"}`);
    if (output === null) continue;
    found.push(seed);
    const { names, errors } = testFailures(output);
    for (const error of errors.length === 0 ? [output] : errors) say(`${error}\n`);
    const failed = new Set(names.map(fileOf).filter((file) => file !== null));
    const again = failed.size === 0 ? files : [...failed];
    say(`Again: ${SEED_VARIABLE}=${seed} deno test -A --no-check ${again.join(" ")}`);
  }
  return found;
}

async function main(args: readonly string[]): Promise<number> {
  const { rounds = `${ROUNDS}`, seed, _: paths } = parseArgs([...args], { string: ["rounds", "seed", "_"] });
  if (!/^[1-9]\d*$/.test(rounds)) {
    throw new TypeError(`--rounds must be a whole number above 0, not "${rounds}"`);
  }
  const files = await filesThatDraw(paths.map(String));
  if (files.length === 0) throw new TypeError(`No test there draws cases: ${paths.join(" ")}`);
  const firstSeed = seed === undefined ? Math.floor(Math.random() * MAX_SEED) : seedOf(seed);
  writeLine(`${files.length} test files, ${rounds} rounds, seeds from ${firstSeed}`);
  const found = await explore({ files, rounds: Number(rounds), firstSeed });
  writeLine(found.length === 0 ? "Nothing found" : `Found something with seeds ${found.join(", ")}`);
  return found.length === 0 ? 0 : 1;
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
