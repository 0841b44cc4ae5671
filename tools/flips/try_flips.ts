/**
 * Tries flips against a suite of test files: first each test runs without a flip, which shows what it comes by; then each flip is
 * switched on alone and the tests that come by it run, the cheapest first, until one fails.
 *
 * @module
 */
import type { Answer } from "./protocol.ts";
import { type Ending, TestChild } from "./test_child.ts";

/** How one flip ended. */
export type Verdict =
  /** A test failed, or the process could not go on. */
  | { readonly kind: "killed"; readonly by: string }
  | { readonly kind: "survived" }
  /** No test comes by it. */
  | { readonly kind: "unreached" };

/** A copy of the project with numbered flips in its sources. */
export interface FlippedCopy {
  readonly folder: string;
  /** Their numbers. */
  readonly flips: readonly number[];
}

export interface Suite {
  /** Relative to the copy. */
  readonly files: readonly string[];
  /** How often random tests try; 0 for as often as they do otherwise. */
  readonly tries: number;
  readonly workers: number;
  readonly stop: AbortSignal;
  /** Told at once. */
  readonly onVerdict: (flip: number, verdict: Verdict) => void;
  /** Tests that fail without any flip, as they may where they need more permissions; they take no part. */
  readonly onInvalid: (test: string, failure: string) => void;
}

/** To load the files and to run a test without a flip. */
const START_CPU_MS = 120_000;
/** On top of ten times what the tests cost without the flip. */
const EXTRA_CPU_MS = 3_000;
/** Then a process is replaced by a new one, long before its own limit. */
const REPLACED_AFTER_CPU_MS = 300_000;

/** What is known of the suite without a flip. */
interface Coverage {
  /** Of tests that pass: their costs by index. */
  readonly costs: ReadonlyMap<number, number>;
  /** Tests that come by a flip, the cheapest first. */
  readonly testsOf: ReadonlyMap<number, readonly number[]>;
  /** Flips in what runs while files load, which happens once in a process. */
  readonly atLoad: ReadonlySet<number>;
}

/** One suite against one copy. */
class SuiteRun {
  readonly #children = new Set<TestChild>();

  constructor(private readonly copy: FlippedCopy, private readonly suite: Suite) {}

  async run(): Promise<void> {
    const { flips } = this.copy;
    const { workers, stop } = this.suite;
    const stopAll = (): void => {
      for (const child of this.#children) child.end();
    };
    stop.addEventListener("abort", stopAll);
    try {
      const coverage = await this.#cover();
      const left = [...flips];
      const work = async (): Promise<void> => {
        let child: TestChild | null = null;
        for (let flip = left.shift(); flip !== undefined; flip = left.shift()) {
          const [verdict, kept] = await this.#try(flip, coverage, child);
          child = kept;
          stop.throwIfAborted();
          this.suite.onVerdict(flip, verdict);
        }
      };
      const ends = await Promise.allSettled(Array.from({ length: Math.min(workers, flips.length) }, work));
      const error = ends.find((end) => end.status === "rejected");
      if (error !== undefined) throw error.reason;
    } finally {
      stop.removeEventListener("abort", stopAll);
      await Promise.all([...this.#children].map((child) => child.end()));
    }
  }

  #spawn(first: number): TestChild {
    this.suite.stop.throwIfAborted();
    const { files, tries } = this.suite;
    const child = new TestChild({ folder: this.copy.folder, files, first, tries });
    this.#children.add(child);
    return child;
  }

  async #start(first: number): Promise<TestChild | Ending> {
    const child = this.#spawn(first);
    const answer = await child.ask(null, START_CPU_MS);
    if (typeof answer !== "string") return child;
    await this.#end(child);
    return answer;
  }

  async #end(child: TestChild): Promise<void> {
    await child.end();
    this.#children.delete(child);
  }

  async #cover(): Promise<Coverage> {
    const child = this.#spawn(0);
    const costs = new Map<number, number>();
    const testsOf = new Map<number, number[]>();
    const ready = await child.ask(null, START_CPU_MS);
    this.suite.stop.throwIfAborted();
    if (typeof ready === "string" || ready.kind !== "ready") {
      throw new Error(`The tests do not load before anything is flipped: ${JSON.stringify(ready)}`);
    }
    for (const [test, name] of ready.tests.entries()) {
      const answer = await child.ask({ kind: "cover", test }, START_CPU_MS);
      this.suite.stop.throwIfAborted();
      if (typeof answer === "string") {
        throw new Error(`Without any flip, the test ${name} ends so: ${answer}`);
      }
      if (answer.kind !== "covered") throw new Error(`No answer of a test: ${JSON.stringify(answer)}`);
      if (answer.failure !== null) {
        this.suite.onInvalid(name, answer.failure);
        continue;
      }
      costs.set(test, answer.cpuMs);
      for (const flip of answer.reached) testsOf.set(flip, [...testsOf.get(flip) ?? [], test]);
    }
    await this.#end(child);
    if (costs.size === 0) throw new Error("No test passes before anything is flipped");
    const costOf = (test: number): number => costs.get(test) ?? 0;
    for (const tests of testsOf.values()) tests.sort((a, b) => costOf(a) - costOf(b));
    return { costs, testsOf, atLoad: new Set(ready.reached) };
  }

  /** Yields the process that can go on, too. */
  async #try(
    flip: number,
    coverage: Coverage,
    given: TestChild | null,
  ): Promise<readonly [Verdict, TestChild | null]> {
    const { costs, testsOf, atLoad } = coverage;
    const tests = testsOf.get(flip) ?? [];
    if (tests.length > 0) {
      const child = given ?? await this.#start(0);
      if (typeof child === "string") throw new Error(`A process of tests does not start: ${child}`);
      const answer = await this.#ask(child, flip, tests, costs);
      if (typeof answer === "string") {
        await this.#end(child);
        return [{ kind: "killed", by: answer }, null];
      }
      if (answer.kind === "killed") return [{ kind: "killed", by: answer.test }, await this.#kept(child)];
      const isSure = answer.kind === "survived" && answer.wasReached && !atLoad.has(flip);
      if (isSure) return [{ kind: "survived" }, await this.#kept(child)];
      // After a spoilt test others would fail as well; a flip that was not reached hides behind a cache.
      if (answer.kind === "spoilt") await this.#end(child);
      const kept = answer.kind === "spoilt" ? null : child;
      return [await this.#tryFresh(flip, tests, costs), kept];
    }
    if (!atLoad.has(flip)) return [{ kind: "unreached" }, given];
    const all = [...costs.keys()].sort((a, b) => (costs.get(a) ?? 0) - (costs.get(b) ?? 0));
    return [await this.#tryFresh(flip, all, costs), given];
  }

  /** In a process of its own, on from the start. */
  async #tryFresh(
    flip: number,
    tests: readonly number[],
    costs: ReadonlyMap<number, number>,
  ): Promise<Verdict> {
    const child = await this.#start(flip);
    if (typeof child === "string") return { kind: "killed", by: `loading: ${child}` };
    const answer = await this.#ask(child, flip, tests, costs);
    await this.#end(child);
    if (typeof answer === "string") return { kind: "killed", by: answer };
    return answer.kind === "killed" ? { kind: "killed", by: answer.test } : { kind: "survived" };
  }

  async #ask(
    child: TestChild,
    flip: number,
    tests: readonly number[],
    costs: ReadonlyMap<number, number>,
  ): Promise<Answer | Ending> {
    const usual = tests.reduce((sum, test) => sum + (costs.get(test) ?? 0), 0);
    return await child.ask({ kind: "run", flip, tests }, EXTRA_CPU_MS + 10 * usual);
  }

  /** The process, unless it has computed for long enough. */
  async #kept(child: TestChild): Promise<TestChild | null> {
    if (await child.usedCpuMs() < REPLACED_AFTER_CPU_MS) return child;
    await this.#end(child);
    return null;
  }
}

/**
 * Yields when each flip of the copy has its verdict; no process is left then, nor after an error.
 *
 * @throws {Error} if the tests do not run before anything is flipped, or the signal's reason
 */
export async function tryFlips(copy: FlippedCopy, suite: Suite): Promise<void> {
  await new SuiteRun(copy, suite).run();
}
