/**
 * Fuzzes one target for some time, in a process of its own, which a fault may end. `tools/fuzz.ts` starts it.
 *
 * Prints a JSON line for each find, and every second. Each input is written to a file before it is tried: of one that ends the process,
 * or does not end, nothing else is left.
 *
 * @module
 */
import { Coverage } from "./coverage.ts";

/** What a campaign is told, as JSON in its one argument. */
export interface CampaignOrder {
  readonly target: string;
  /**
   * `small`: those that go a new way through the code are what the next ones are made from. `large` ones, and time, are judged without
   * counting that.
   */
  readonly size: "small" | "large";
  readonly seconds: number;
  readonly seed: number;
  /** Where the input is that is being tried, as JSON. */
  readonly inputFile: string;
}

/** What a campaign tells. */
export interface CampaignReport {
  readonly inputs: number;
  /** Blocks of code that were run; 0 where that is not counted. */
  readonly blocks: number;
  readonly find?: { readonly was: string; readonly input: string | readonly (readonly [string, number])[] };
  /** Told at the end: inputs that ran a block that none had run. */
  readonly kept?: readonly string[];
}

const REPORT_MS = 1_000;
const MIB = 2 ** 20;
/** Counting makes code slower. */
const COUNTING_SLACK = 20;

function report(reported: CampaignReport): void {
  const bytes = new TextEncoder().encode(`${JSON.stringify(reported)}\n`);
  for (let rest = bytes; rest.length > 0;) rest = rest.subarray(Deno.stdout.writeSync(rest));
}

async function run({ target: name, size, seconds, seed, inputFile }: CampaignOrder): Promise<void> {
  const coverage = size === "small" ? await Coverage.start() : null;
  // What is counted is loaded only now.
  const { corpusOf, TARGETS } = await import("./corpus.ts");
  const { findIn, kindOf, minimized } = await import("./judge.ts");
  const { mutated, swollen } = await import("./mutate.ts");
  const { wholeOf } = await import("./target.ts");
  const { Random } = await import("../chaos/random.ts");
  const target = TARGETS.find((one) => one.name === name)!;
  const inputs = [...(await corpusOf(target)).inputs];
  const kept: string[] = [];
  const random = new Random(seed);
  const known = new Set<string>();
  const slack = coverage === null ? 1 : COUNTING_SLACK;
  const endMs = performance.now() + seconds * 1_000;
  let [count, reportedMs] = [0, performance.now()];
  const told = (more: Partial<CampaignReport>): void =>
    report({ inputs: count, blocks: coverage?.blocks ?? 0, ...more });
  const first = inputs.length;
  const next = () => {
    if (count < first) return inputs[count]!;
    // What went a new way lately has more to show.
    const input = random.pick(random.chance(0.5) ? inputs.slice(-32) : inputs);
    if (size === "small" || random.chance(0.5)) return mutated(input, inputs, random);
    return swollen(input, random, random.pick([MIB / 16, MIB / 4, MIB]));
  };
  while (performance.now() < endMs) {
    const input = next();
    const whole = wholeOf(input);
    Deno.writeTextFileSync(inputFile, JSON.stringify(input));
    const was = await findIn(target, whole, { slack });
    count++;
    if (was !== undefined && !known.has(kindOf(was))) {
      known.add(kindOf(was));
      told({ find: { was, input: await minimized(target, input, kindOf(was)) } });
    }
    const news = await coverage?.news();
    if (news !== undefined && news.all > 0 && count > first) {
      inputs.push(whole);
      if (news.blocks > 0) kept.push(whole);
    }
    if (performance.now() - reportedMs < REPORT_MS) continue;
    reportedMs = performance.now();
    told({});
  }
  told({ kept });
}

if (import.meta.main) await run(JSON.parse(Deno.args[0]!));
