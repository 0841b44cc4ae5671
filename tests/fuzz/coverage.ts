/**
 * Which ways inputs go through the code, as V8 counts them: blocks, and how often each was run, by powers of two.
 *
 * Begins before what is to be counted is loaded: what was compiled without counters has none.
 *
 * @module
 */
import { type Profiler, Session } from "node:inspector/promises";

/** The project's own code, and the two packages that parse. */
const COUNTED = /\/lib\/|\/yaml\/|\/pbf\//;

/** Tells what has not been seen before. */
export class Coverage {
  readonly #session = new Session();
  /** Block → the powers of two that it was run so often. */
  readonly #seen = new Map<string, number>();

  private constructor() {
    this.#session.connect();
  }

  /** Begins to count. */
  static async start(): Promise<Coverage> {
    const coverage = new Coverage();
    await coverage.#session.post("Profiler.enable");
    await coverage.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
    return coverage;
  }

  /** How many blocks have been run. */
  get blocks(): number {
    return this.#seen.size;
  }

  /** How much is new of what was run since the last question: a block, or that it was run so often. */
  async news(): Promise<{ readonly blocks: number; readonly all: number }> {
    const { result } = await this.#session.post("Profiler.takePreciseCoverage");
    const before = this.#seen.size;
    let all = 0;
    for (const { url, functions } of result) {
      if (!COUNTED.test(url)) continue;
      for (const { ranges } of functions) for (const range of ranges) all += this.#note(url, range);
    }
    return { blocks: this.#seen.size - before, all };
  }

  #note(url: string, { startOffset, endOffset, count }: Profiler.CoverageRange): number {
    if (count === 0) return 0;
    const key = `${url}:${startOffset}-${endOffset}`;
    const bit = 1 << Math.min(16, Math.floor(Math.log2(count)));
    const known = this.#seen.get(key) ?? 0;
    if ((known & bit) !== 0) return 0;
    this.#seen.set(key, known | bit);
    return 1;
  }
}
