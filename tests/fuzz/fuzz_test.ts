/**
 * Parsers of foreign input: what was found before, and inputs that are new with each seed. `deno task fuzz` tries more.
 */
import { assert } from "@std/assert";
import { Random } from "../chaos/random.ts";
import { drawnAgain, seedsFor } from "../support/fast_check.ts";
import { corpusOf, TARGETS } from "./corpus.ts";
import { findIn } from "./judge.ts";
import { mutated, swollen } from "./mutate.ts";
import { type FuzzTarget, type Input, wholeOf } from "./target.ts";

const INPUTS = 150;
const LARGE_INPUTS = 4;
const LARGE_BYTES = 256 * 1024;
/** Other tests run at the same time: `deno task fuzz` judges time without them. */
const SLACK = 4;

// The YAML package reads these two.
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

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
    for (const [at, { seed, cases }] of seedsFor(INPUTS).entries()) {
      const random = Random.part(seed, index);
      const what = `seed ${seed}${at === 0 ? "" : `. ${drawnAgain(seed)}`}`;
      for (let left = cases; left > 0; left--) {
        await holds(target, mutated(random.pick(inputs), inputs, random), what);
      }
      for (let left = at === 0 ? LARGE_INPUTS : 1; left > 0; left--) {
        const input = wholeOf(swollen(random.pick(inputs), random, LARGE_BYTES));
        await holds(target, input, `a large input, ${what}`);
      }
    }
  });
}
