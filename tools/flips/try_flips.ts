/**
 * Tries flips against test files: first each test runs without a flip, which shows what it comes by; then each flip is switched on alone
 * and the tests that come by it run, the quickest first, until one fails.
 *
 * @module
 */
import { LineReader } from "../../tests/bench/line_reader.ts";
import { type Answer, MARK, type Question } from "./test_process.ts";

/** `unreached`: no test comes by the flip. */
export type Verdict = "noticed" | "survived" | "unreached";

/** Flips, and the tests that are to notice them. */
export interface Suite {
  /** The copy of the project that has the flips in its sources; its tests can read nothing else. */
  readonly folder: string;
  /** Test files, relative to the copy. */
  readonly files: readonly string[];
  /** Numbers of the flips. */
  readonly flips: readonly number[];
  readonly workers: number;
  readonly stop: AbortSignal;
  readonly onVerdict: (flip: number, verdict: Verdict) => void;
  /** Tests that fail without any flip, as they may where they need more permissions; they take no part. */
  readonly onInvalid: (test: string, failure: string) => void;
}

/** To load the files and to run a test without a flip. */
const START_CPU_MS = 120_000;
/** On top of ten times what the tests cost without the flip. */
const EXTRA_CPU_MS = 3_000;
/** Asleep for so long a process waits for what never comes. */
const ASLEEP_MS = 10_000;
const LOOK_MS = 100;
const HEAP_MB = 800;

/** A process with the test files loaded. One that has used up its time, or ended by itself, answers nothing more. */
class TestProcess {
  readonly #child: Deno.ChildProcess;
  readonly #lines: LineReader;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;

  /** @param flip the one that is on while files load; 0 for none */
  constructor({ folder, files }: Suite, flip: number) {
    const limits = [
      "--no-prompt",
      "--allow-env",
      `--allow-read=${folder}`,
      `--v8-flags=--max-old-space-size=${HEAP_MB}`,
    ];
    this.#child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--no-check", "--quiet", ...limits, `${folder}/tools/flips/test_process.ts`, `${flip}`],
        ...files.map((file) => `${folder}/${file}`),
      ],
      cwd: folder,
      env: { NO_COLOR: "1" },
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    this.#lines = new LineReader(this.#child.stdout);
    this.#input = this.#child.stdin.getWriter();
  }

  /** The answer to a question, or to the start; null from a process that ended, or had to be. */
  async ask(question: Question | null, cpuMs: number): Promise<Answer | null> {
    if (question !== null) {
      // What cannot be asked has ended, and its output with it.
      const line = new TextEncoder().encode(`${JSON.stringify(question)}\n`);
      await this.#input.write(line).catch(() => undefined);
    }
    const answer = this.#answer();
    let hasAnswer = false;
    answer.then(() => hasAnswer = true);
    const start = await this.#use();
    let [last, asleepMs] = [start, 0];
    while (!hasAnswer) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await Promise.race([answer, new Promise((resolve) => timer = setTimeout(resolve, LOOK_MS))]);
      clearTimeout(timer);
      const now = await this.#use();
      // Counted in looks: on a busy machine this process may have had to wait as well.
      asleepMs = now.isAsleep && now.cpuMs === last.cpuMs ? asleepMs + LOOK_MS : 0;
      last = now;
      if (!hasAnswer && (now.cpuMs - start.cpuMs > cpuMs || asleepMs > ASLEEP_MS)) await this.end();
    }
    return await answer;
  }

  async #answer(): Promise<Answer | null> {
    for (let line = await this.#lines.next(); line !== null; line = await this.#lines.next()) {
      if (line.startsWith(MARK)) return JSON.parse(line.slice(MARK.length));
    }
    return null;
  }

  /** What the process has used so far; nothing once it has ended. */
  async #use(): Promise<{ readonly cpuMs: number; readonly isAsleep: boolean }> {
    const stat = await Deno.readTextFile(`/proc/${this.#child.pid}/stat`).catch(() => "");
    // The program's name, in brackets, may hold blanks. Linux counts in hundredths of a second.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { cpuMs: (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * 10, isAsleep: fields[0] === "S" };
  }

  async end(): Promise<void> {
    try {
      this.#child.kill("SIGKILL");
    } catch (error) {
      // It has ended by itself.
      if (!(error instanceof TypeError)) throw error;
    }
    await this.#child.status;
  }
}

/** What is known of tests without a flip. */
interface Coverage {
  /** Of tests that pass: their processor time in milliseconds by index. */
  readonly costs: ReadonlyMap<number, number>;
  /** Tests that come by a flip, the quickest first. */
  readonly testsOf: ReadonlyMap<number, readonly number[]>;
}

/**
 * Yields when each flip has its verdict; no process is left then, nor after an error.
 *
 * @throws {Error} if the tests do not run before anything is flipped, or the signal's reason
 */
export async function tryFlips(suite: Suite): Promise<void> {
  const { flips, workers, stop, onVerdict } = suite;
  const running = new Set<TestProcess>();
  const endAll = (): Promise<unknown> => Promise.all([...running].map((process) => process.end()));
  stop.addEventListener("abort", endAll);
  const start = (flip: number): TestProcess => {
    stop.throwIfAborted();
    const process = new TestProcess(suite, flip);
    running.add(process);
    return process;
  };
  const end = async (process: TestProcess): Promise<void> => {
    running.delete(process);
    await process.end();
  };
  try {
    const first = start(0);
    const coverage = await cover(first, suite);
    await end(first);
    const left = [...flips];
    const work = async (): Promise<void> => {
      let shared: TestProcess | null = null;
      for (let flip = left.shift(); flip !== undefined; flip = left.shift()) {
        const tests = coverage.testsOf.get(flip) ?? [];
        if (tests.length === 0) {
          onVerdict(flip, "unreached");
          continue;
        }
        if (shared === null) {
          shared = start(0);
          const ready = await shared.ask(null, START_CPU_MS);
          stop.throwIfAborted();
          if (ready === null) throw new Error("A process of tests does not start");
        }
        const answer = await run(shared, flip, tests, coverage);
        if (answer === null || answer === "spoilt") {
          await end(shared);
          shared = null;
        }
        let isNoticed = answer === null || answer === "noticed";
        if (!isNoticed) {
          // What survives may hide behind a cache that a test has filled, or run only while files load.
          const own = start(flip);
          isNoticed = await own.ask(null, START_CPU_MS) === null ||
            await run(own, flip, tests, coverage) !== "survived";
          await end(own);
        }
        stop.throwIfAborted();
        onVerdict(flip, isNoticed ? "noticed" : "survived");
      }
    };
    await Promise.all(Array.from({ length: Math.min(workers, flips.length) }, work));
  } finally {
    stop.removeEventListener("abort", endAll);
    await endAll();
  }
}

async function run(
  process: TestProcess,
  flip: number,
  tests: readonly number[],
  { costs }: Coverage,
): Promise<Answer["kind"] | null> {
  const usual = tests.reduce((sum, test) => sum + (costs.get(test) ?? 0), 0);
  return (await process.ask({ kind: "run", flip, tests }, EXTRA_CPU_MS + 10 * usual))?.kind ?? null;
}

async function cover(process: TestProcess, { stop, onInvalid }: Suite): Promise<Coverage> {
  const ready = await process.ask(null, START_CPU_MS);
  stop.throwIfAborted();
  if (ready?.kind !== "ready") throw new Error("The tests do not load before anything is flipped");
  const [costs, times] = [new Map<number, number>(), new Map<number, number>()];
  const testsOf = new Map<number, number[]>();
  for (const [test, name] of ready.tests.entries()) {
    const answer = await process.ask({ kind: "cover", test }, START_CPU_MS);
    stop.throwIfAborted();
    if (answer?.kind !== "covered") throw new Error(`Without any flip, the test ${name} does not end`);
    if (answer.failure !== null) {
      onInvalid(name, answer.failure);
      continue;
    }
    costs.set(test, answer.cpuMs);
    times.set(test, answer.tookMs);
    for (const flip of answer.reached) testsOf.set(flip, [...testsOf.get(flip) ?? [], test]);
  }
  if (costs.size === 0) throw new Error("No test passes before anything is flipped");
  // Any test may show what runs while files load.
  for (const flip of ready.reached) {
    testsOf.set(flip, [...new Set([...testsOf.get(flip) ?? [], ...costs.keys()])]);
  }
  for (const tests of testsOf.values()) tests.sort((a, b) => (times.get(a) ?? 0) - (times.get(b) ?? 0));
  return { costs, testsOf };
}
