/**
 * Reading a long text beside everything else that there is to do.
 *
 * @module
 */
import { Mutex } from "../../kernel/mutex.ts";
import { everybodysTurn } from "../../kernel/turns.ts";
import type { Logger } from "../../observe/log.ts";

/** How long work on a file may go on until everything else has its turn. */
export const TURN_MS = 5;

/** What may take how long. */
export interface ReadingLimits {
  /** So long everything waits for a text; one that takes longer is read beside the rest. */
  readonly shortMs: number;
  /** What takes longer is told, while it lasts and at its end. */
  readonly longMs: number;
}

const LIMITS: ReadingLimits = { shortMs: 200, longMs: 5_000 };

/** A text that is being read. */
export interface Reading<T> {
  /** What it gave, if that took no longer than others may wait. */
  readonly short: T | undefined;
  /** What it gives in the end. Rejects with what reading threw, and with the signal's reason. */
  readonly whole: Promise<T>;
}

/** Reads texts in turns: however many there are, everything else waits for one turn of one of them. */
export class TurnReader {
  readonly #log: Logger;
  readonly #limits: ReadingLimits;
  readonly #oneAtATime = new Mutex();

  constructor(log: Logger, limits: ReadingLimits = LIMITS) {
    this.#log = log;
    this.#limits = limits;
  }

  /** Begins to read, and waits as long as others may be kept waiting. */
  async begin<T>(path: string, steps: Iterator<void, T>, signal: AbortSignal): Promise<Reading<T>> {
    const startMs = performance.now();
    const first = await this.#goOn(steps, signal, startMs + this.#limits.shortMs);
    if (first.done === true) return { short: first.value, whole: Promise.resolve(first.value) };
    const whole = this.#finish(path, steps, signal, startMs);
    // Whoever waits for it is told.
    whole.catch(() => null);
    return { short: undefined, whole };
  }

  async #finish<T>(path: string, steps: Iterator<void, T>, signal: AbortSignal, startMs: number): Promise<T> {
    const early = await this.#goOn(steps, signal, startMs + this.#limits.longMs);
    if (early.done === true) return early.value;
    this.#log.warn("A manifest file takes long to read; others go on, and what it held stays in force", {
      file: path,
      seconds: secondsSince(startMs),
    });
    const late = await this.#goOn(steps, signal, Infinity);
    this.#log.warn("A manifest file took long to read", { file: path, seconds: secondsSince(startMs) });
    return late.value as T;
  }

  /**
   * Takes steps until so late.
   *
   * @throws the reason of `signal` once that aborts
   */
  async #goOn<T>(
    steps: Iterator<void, T>,
    signal: AbortSignal,
    untilMs: number,
  ): Promise<IteratorResult<void, T>> {
    for (;;) {
      const step = await this.#oneAtATime.run(() => oneTurn(steps));
      if (step.done === true || performance.now() >= untilMs) return step;
      signal.throwIfAborted();
    }
  }
}

/** Some steps, and then time for everything else. */
async function oneTurn<T>(steps: Iterator<void, T>): Promise<IteratorResult<void, T>> {
  const startMs = performance.now();
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step;
    if (performance.now() - startMs < TURN_MS) continue;
    await everybodysTurn();
    return step;
  }
}

function secondsSince(startMs: number): number {
  return Math.round((performance.now() - startMs) / 100) / 10;
}
