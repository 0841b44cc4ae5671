/**
 * What a chaos run does, step by step. It follows from the seed alone.
 *
 * @module
 */
import type { Fault } from "./faults.ts";
import { Random } from "./random.ts";

/** One fault of a step. */
export interface PlannedFault {
  readonly fault: Fault;
  /** After the step began, in milliseconds. */
  readonly afterMs: number;
  /** Its own stream: faults run side by side, and what one draws must not depend on the others' pace. */
  readonly random: Random;
}

/** A time in which objects change while things go wrong. */
export interface Step {
  /** When each change happens after the step began, in milliseconds, in order; several may come at once. */
  readonly changesAtMs: readonly number[];
  /** What draws the changes, one after the other. */
  readonly random: Random;
  readonly faults: readonly PlannedFault[];
}

/** After so many steps without damage the rules are looked at, too. */
export const QUIET_EVERY = 4;
const LENGTH_MS = 2_000;
/** No faults, one, or several at once. */
const FAULT_COUNTS = [0, 0, 1, 1, 1, 1, 2, 2, 3];

/** Step `index` of the run with this seed. */
export function planStep(seed: number, index: number, faults: readonly Fault[]): Step {
  const random = Random.part(seed, index);
  const isBurst = random.chance(0.3);
  const burstAtMs = random.whole(0, LENGTH_MS);
  const changesAtMs = Array.from(
    { length: isBurst ? random.whole(10, 40) : random.whole(0, 8) },
    () => isBurst ? burstAtMs : random.whole(0, LENGTH_MS),
  ).sort((a, b) => a - b);
  const planned = Array.from({ length: random.pick(FAULT_COUNTS) }, () => ({
    fault: weighted(random, faults),
    afterMs: random.whole(0, LENGTH_MS),
    random: new Random(random.whole(0, 0x7fffffff)),
  }));
  return { changesAtMs, random: new Random(random.whole(0, 0x7fffffff)), faults: planned };
}

function weighted(random: Random, faults: readonly Fault[]): Fault {
  const total = faults.reduce((sum, { weight }) => sum + weight, 0);
  let at = random.unit() * total;
  for (const fault of faults) {
    at -= fault.weight;
    if (at < 0) return fault;
  }
  return faults.at(-1)!;
}
