/**
 * Parsers of what other parties write, given what was found before and some hundred inputs that are new with each seed.
 * `deno task fuzz` goes on for as long as it is told.
 */
import { assert } from "@std/assert";
import { Random } from "../chaos/random.ts";
import { SEED_VARIABLE, seedOf } from "../support/fast_check.ts";
import { corpusOf, TARGETS } from "./corpus.ts";
import { findIn } from "./judge.ts";
import { mutated, swollen } from "./mutate.ts";
import { type FuzzTarget, type Input, wholeOf } from "./target.ts";

const INPUTS = 300;
const LARGE_INPUTS = 4;
const LARGE_BYTES = 256 * 1024;
/** Other tests run at the same time: `deno task fuzz` judges time without them. */
const SLACK = 4;

// The YAML package reads these two.
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };
const seed = seedOf(Deno.env.get(SEED_VARIABLE));

async function holds(target: FuzzTarget, input: Input, what: string): Promise<void> {
  const find = await findIn(target, input, { slack: SLACK });
  assert(find === undefined, `${find}\n${what}: ${JSON.stringify(input.slice(0, 2_000))}`);
}

for (const [index, target] of TARGETS.entries()) {
  const { kept, inputs } = await corpusOf(target);

  Deno.test(`${target.name}: what broke a law once breaks none`, { permissions }, async () => {
    for (const find of kept.finds) await holds(target, wholeOf(find.input), find.was);
    for (const input of inputs) await holds(target, input, "an input that inputs are made from");
  });

  Deno.test(`${target.name}: whatever comes is read or refused, soon, and says the same once more`, {
    permissions,
  }, async () => {
    const random = Random.part(seed, index);
    for (let left = INPUTS; left > 0; left--) {
      await holds(target, mutated(random.pick(inputs), inputs, random), `seed ${seed}`);
    }
    for (let left = LARGE_INPUTS; left > 0; left--) {
      await holds(
        target,
        wholeOf(swollen(random.pick(inputs), random, LARGE_BYTES)),
        `seed ${seed}, a large input that begins with`,
      );
    }
  });
}
