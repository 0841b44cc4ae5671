/**
 * The last warnings and errors, for the status.
 *
 * @module
 */
import { cut } from "../text/quote.ts";
import { type LoggedProblem, valuesText } from "./log.ts";

/** One that is remembered. */
export interface RecentProblem {
  readonly severity: "warning" | "error";
  readonly message: string;
  /** `err="…" family="IPv4"`; cut off if it is long. */
  readonly values: string;
  /** When it was logged first and last, in milliseconds since the epoch. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** How often in a row. */
  readonly count: number;
}

const CAPACITY = 50;
const MAX_VALUES_LENGTH = 600;

/** Remembers a few of them. The same one again, with nothing else in between, takes no further place. */
export class RecentProblems {
  readonly #nowMs: () => number;
  #problems: RecentProblem[] = [];
  #total = 0;

  /** @param nowMs milliseconds since the epoch */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** How many there were since the process began. */
  get total(): number {
    return this.#total;
  }

  /** The oldest first. */
  get problems(): readonly RecentProblem[] {
    return this.#problems;
  }

  add({ severity, message, values: logged }: LoggedProblem): void {
    this.#total++;
    const nowMs = this.#nowMs();
    const values = cut(valuesText(logged), MAX_VALUES_LENGTH);
    const kind = severity === "W" ? "warning" : "error";
    const last = this.#problems.at(-1);
    const isSame = last?.message === message && last.severity === kind && last.values === values;
    const kept = isSame ? this.#problems.slice(0, -1) : this.#problems.slice(1 - CAPACITY);
    const before = isSame ? last : { firstMs: nowMs, count: 0 };
    kept.push({
      severity: kind,
      message,
      values,
      firstMs: before.firstMs,
      lastMs: nowMs,
      count: before.count + 1,
    });
    this.#problems = kept;
  }
}
