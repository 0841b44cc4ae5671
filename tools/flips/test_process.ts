/**
 * A process that holds test files with flips in them and runs tests with one flip on, as the parent asks. Words: the mark that
 * begins each of its answers, the flip that is on from the start (0 for none), how often random tests try (0: as usual), the test
 * files.
 *
 * Tests run one after another in one isolate, without the sanitizers of `deno test`; random ones always use the same seed.
 *
 * @module
 */
import process from "node:process";
import fc from "../../tests/support/fast_check.ts";
import { FlipSwitch } from "./switch.ts";
import type { Answer, Question } from "./protocol.ts";

type TestFunction = (context: Deno.TestContext) => void | Promise<void>;

interface CollectedTest {
  readonly name: string;
  readonly run: TestFunction;
}

const tests: CollectedTest[] = [];
const flips = new FlipSwitch();
/** What was rejected behind a test's back. */
let stray: unknown = undefined;

/** `Deno.test` in all its forms, as far as they tell what to run. */
function collect(...words: unknown[]): void {
  const options = words.filter((word) => typeof word === "object") as Partial<Deno.TestDefinition>[];
  if (options.some(({ ignore }) => ignore === true)) return;
  const run = words.find((word) => typeof word === "function") ??
    options.find(({ fn }) => fn !== undefined)?.fn;
  const name = words.find((word) => typeof word === "string") ?? options[0]?.name;
  tests.push({ name: String(name), run: run as TestFunction });
}

const context = {
  name: "",
  origin: "",
  async step(first: string | Deno.TestStepDefinition | TestFunction, fn?: TestFunction): Promise<boolean> {
    if (typeof first === "object") await first.fn(context as unknown as Deno.TestContext);
    else await (typeof first === "string" ? fn : first)?.(context as unknown as Deno.TestContext);
    return true;
  },
};

/** Null if the test passes, or what it throws. */
async function failureOf(test: CollectedTest): Promise<string | null> {
  stray = undefined;
  try {
    await test.run(context as unknown as Deno.TestContext);
    // An uncaught rejection is reported in the turn after.
    await new Promise((resolve) => setTimeout(resolve));
    if (stray !== undefined) throw stray;
    return null;
  } catch (error) {
    return String(error).slice(0, 2_000);
  }
}

/** One test without any flip: how it ends, what it costs and which flips it comes by. */
async function cover(index: number): Promise<Answer> {
  flips.reached = new Set();
  const start = process.cpuUsage();
  const failure = await failureOf(tests[index] as CollectedTest);
  const { user, system } = process.cpuUsage(start);
  return { kind: "covered", failure, cpuMs: (user + system) / 1_000, reached: [...flips.reached] };
}

/** Tests with the flip on, until one fails. */
async function run(flip: number, chosen: readonly number[], isFresh: boolean): Promise<Answer> {
  flips.reached = new Set();
  for (const index of chosen) {
    const test = tests[index] as CollectedTest;
    flips.on = flip;
    const failure = await failureOf(test);
    flips.on = 0;
    if (failure === null) continue;
    // What an earlier flip left in a cache must not count against this one.
    const isSpoilt = !isFresh && await failureOf(test) !== null;
    return { kind: isSpoilt ? "spoilt" : "killed", test: test.name };
  }
  return { kind: "survived", wasReached: flips.reached.has(flip) };
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let text = "";
  for await (
    const chunk of stream.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)
  ) {
    const lines = (text + chunk).split("\n");
    text = lines.pop() as string;
    yield* lines;
  }
}

async function main([mark = "", first = "0", tries = "0", ...files]: readonly string[]): Promise<void> {
  const { stdin, stdout } = Deno;
  const say = (answer: Answer): void => {
    let bytes: Uint8Array = new TextEncoder().encode(`\n${mark}${JSON.stringify(answer)}\n`);
    while (bytes.length > 0) bytes = bytes.subarray(stdout.writeSync(bytes));
  };
  // deno-lint-ignore no-console -- tests print for humans.
  for (const name of ["log", "info", "warn", "error", "debug"] as const) console[name] = (): void => {};
  for (const kind of ["unhandledrejection", "error"] as const) {
    globalThis.addEventListener(kind, (event) => {
      event.preventDefault();
      stray = "reason" in event ? event.reason : event;
    });
  }
  Object.assign(Deno, { test: collect });
  if (tries !== "0") fc.configureGlobal({ ...fc.readConfigureGlobal(), numRuns: Number(tries) });
  flips.install(globalThis as unknown as Record<string, unknown>);
  flips.on = Number(first);
  for (const file of files) await import(file);
  flips.on = 0;
  say({ kind: "ready", tests: tests.map(({ name }) => name), reached: [...flips.reached] });
  for await (const line of linesOf(stdin.readable)) {
    const question = JSON.parse(line) as Question;
    if (question.kind === "cover") say(await cover(question.test));
    else say(await run(question.flip, question.tests, question.flip === Number(first)));
  }
}

await main(Deno.args);
// What a flip has left behind, such as timers, must not keep a process whose parent is gone.
// deno-lint-ignore kproxy/exit-fence -- it is no part of kproxy.
Deno.exit(0);
