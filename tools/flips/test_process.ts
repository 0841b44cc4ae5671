/**
 * A process that holds test files with flips in them and runs tests with one flip on, as `try_flips.ts` asks: JSON, one a line. Arguments:
 * the flip that is on from the start (0 for none), and the test files.
 *
 * Tests run one after another in one isolate, without the sanitizers of `deno test`.
 *
 * @module
 */
import process from "node:process";

/** Run a test without any flip; or run tests with a flip on, until one fails. */
export type Question =
  | { readonly kind: "cover"; readonly test: number }
  | { readonly kind: "run"; readonly flip: number; readonly tests: readonly number[] };

export type Answer =
  /** All files are loaded: names of their tests, and the flips that loading ran. */
  | { readonly kind: "ready"; readonly tests: readonly string[]; readonly reached: readonly number[] }
  | {
    readonly kind: "covered";
    /** What the test threw; null if it passed. */
    readonly failure: string | null;
    readonly cpuMs: number;
    /** By the clock: tests that wait cost no processor time, and are no quick ones. */
    readonly tookMs: number;
    readonly reached: readonly number[];
  }
  /** `spoilt`: the test now fails without the flip, too, because a flip left something behind. */
  | { readonly kind: "noticed" | "spoilt" | "survived" };

/** Begins each answer: tests may print lines as well. */
export const MARK = "flips: ";

type TestFunction = (context: Deno.TestContext) => void | Promise<void>;
type Values = readonly [left: never, right: never];

const OPERATORS: Readonly<Record<string, (...values: Values) => unknown>> = {
  "===": (a, b) => a === b,
  "!==": (a, b) => a !== b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "%": (a, b) => a % b,
  "&": (a, b) => a & b,
  "|": (a, b) => a | b,
  "<<": (a, b) => a << b,
  ">>": (a, b) => a >> b,
};

const tests: { readonly name: string; readonly run: TestFunction }[] = [];
/** The flip that is on; 0 for none. */
let on = 0;
/** The flips that the program came by. */
let reached = new Set<number>();
/** What was rejected behind a test's back. */
let stray: unknown = undefined;

/** True if this flip is on. */
function isOn(flip: number): boolean {
  reached.add(flip);
  return on === flip;
}

/** What flipped text uses (`source_flips.ts`). `$b` gets flips and their operators by turns. */
const SWITCH = {
  $t: undefined,
  $m: isOn,
  $n: (flip: number, value: unknown): unknown => isOn(flip) ? !value : value,
  $b: (operator: string, cases: readonly (number | string)[], ...values: Values): unknown => {
    let chosen = operator;
    for (let at = 0; at < cases.length; at += 2) {
      if (isOn(cases[at] as number)) chosen = cases[at + 1] as string;
    }
    return OPERATORS[chosen]?.(...values);
  },
};

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
async function failureOf(test: number): Promise<string | null> {
  stray = undefined;
  try {
    await tests[test]!.run(context as unknown as Deno.TestContext);
    // An uncaught rejection is reported in the turn after.
    await new Promise((resolve) => setTimeout(resolve));
    if (stray !== undefined) throw stray;
    return null;
  } catch (error) {
    return String(error).slice(0, 2_000);
  }
}

async function cover(test: number): Promise<Answer> {
  reached = new Set();
  const [start, startMs] = [process.cpuUsage(), performance.now()];
  const failure = await failureOf(test);
  const { user, system } = process.cpuUsage(start);
  const tookMs = performance.now() - startMs;
  return { kind: "covered", failure, cpuMs: (user + system) / 1_000, tookMs, reached: [...reached] };
}

async function run(flip: number, chosen: readonly number[]): Promise<Answer> {
  for (const test of chosen) {
    on = flip;
    const failure = await failureOf(test);
    on = 0;
    // What an earlier flip left in a cache must not count against this one.
    if (failure !== null) return { kind: await failureOf(test) === null ? "noticed" : "spoilt" };
  }
  return { kind: "survived" };
}

function answer(answer: Answer): void {
  let bytes: Uint8Array = new TextEncoder().encode(`\n${MARK}${JSON.stringify(answer)}\n`);
  while (bytes.length > 0) bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
}

async function main([first = "0", ...files]: readonly string[]): Promise<void> {
  // deno-lint-ignore no-console -- tests print for humans.
  for (const name of ["log", "info", "warn", "error", "debug"] as const) console[name] = (): void => {};
  for (const kind of ["unhandledrejection", "error"] as const) {
    globalThis.addEventListener(kind, (event) => {
      event.preventDefault();
      stray = "reason" in event ? event.reason : event;
    });
  }
  Object.assign(Deno, { test: collect });
  Object.assign(globalThis, SWITCH);
  on = Number(first);
  for (const file of files) await import(file);
  on = 0;
  answer({ kind: "ready", tests: tests.map(({ name }) => name), reached: [...reached] });
  let text = "";
  for await (const chunk of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (text + chunk).split("\n");
    text = lines.pop() as string;
    for (const line of lines) {
      const question = JSON.parse(line) as Question;
      answer(
        question.kind === "cover" ? await cover(question.test) : await run(question.flip, question.tests),
      );
    }
  }
}

if (import.meta.main) {
  await main(Deno.args);
  // What a flip has left behind, such as timers, must not keep a process whose parent is gone.
  // deno-lint-ignore kproxy/exit-fence -- it is no part of kproxy.
  Deno.exit(0);
}
