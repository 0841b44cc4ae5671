/**
 * The shortest chaos run that is worth one: a part of the tests.
 *
 * @module
 */
import { assert } from "@std/assert";
import { writeErrorLine } from "../../tools/output.ts";
import { seedsFor } from "../support/fast_check.ts";
import { reportLines } from "./chaos.ts";
import type { ChaosModeName } from "./mode.ts";
import { runChaos } from "./run.ts";

const MINUTES = 1;

/**
 * A minute of chaos, in CI with its last steps from the seed that was drawn for this run; with what it takes to judge it, more.
 *
 * @throws {AssertionError} with what was wrong, how to have it again, and everything that happened
 */
export async function minuteOfChaos(mode: ChaosModeName, seed: number): Promise<void> {
  const lines: string[] = [];
  const lastSeed = seedsFor(1)[1]?.seed ?? seed;
  const report = await runChaos({ mode, minutes: MINUTES, seed, lastSeed, log: (line) => lines.push(line) });
  reportLines(report).forEach(writeErrorLine);
  const again = `deno task chaos --mode ${mode} --minutes ${MINUTES} --seed ${seed} --last-seed ${lastSeed}`;
  const message = [...report.problems, again, ...reportLines(report), ...lines].join("\n");
  assert(report.problems.length === 0, message);
  assert(report.comparisons > 0, message);
}
