/**
 * The shortest chaos run that is worth one: a part of the tests.
 *
 * @module
 */
import { assert } from "@std/assert";
import { reportLines } from "./chaos.ts";
import type { ChaosModeName } from "./mode.ts";
import { runChaos } from "./run.ts";

const MINUTES = 1;

/**
 * A minute of chaos; with what it takes to judge it, more.
 *
 * @throws {AssertionError} with what was wrong, how to have it again, and everything that happened
 */
export async function minuteOfChaos(mode: ChaosModeName, seed: number): Promise<void> {
  const lines: string[] = [];
  const report = await runChaos({ mode, minutes: MINUTES, seed, log: (line) => lines.push(line) });
  const again = `deno task chaos --mode ${mode} --minutes ${MINUTES} --seed ${seed}`;
  const message = [...report.problems, again, ...reportLines(report), ...lines].join("\n");
  assert(report.problems.length === 0, message);
  assert(report.comparisons > 0, message);
}
