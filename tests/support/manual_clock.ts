/**
 * Time that passes only when a test says so, beside real connections.
 *
 * @module
 */
import type { Clock } from "../../lib/kernel/clock.ts";

/** How it is known that something is under way for which time must not pass yet. */
export interface ManualClockOptions {
  /** A wait of just this length is the limit of a request that has no answer yet. */
  readonly requestMs: number;
  /** How many turns of the event loop such a request is given, of a millisecond and more each: a machine that stands still takes none of
   * them. @default {1000} */
  readonly patience?: number;
}

interface Sleeper {
  readonly ms: number;
  readonly dueMs: number;
  readonly wake: () => void;
}

/** Enough for answers over loopback to arrive, and for what follows from them: the event loop looks at all of them in each turn. */
const TURNS = 15;
const PATIENCE_MS = 300_000;

/** See the module. */
export class ManualClock implements Clock {
  readonly #sleepers = new Set<Sleeper>();
  readonly #options: ManualClockOptions;
  #nowMs = 0;

  constructor(options: ManualClockOptions) {
    this.#options = options;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const wake = (): void => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const sleeper = { ms, dueMs: this.#nowMs + ms, wake };
      this.#sleepers.add(sleeper);
      signal?.addEventListener("abort", wake, { once: true });
    });
  }

  /** Lets this much time pass: everything that is due on the way happens at its time, and has real time for what it does. */
  async pass(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms;
    await this.#settled();
    for (let dueMs = this.#nextMs(); dueMs <= endMs; dueMs = this.#nextMs()) await this.#passTo(dueMs);
    this.#nowMs = endMs;
  }

  /**
   * Lets time pass until the condition holds.
   *
   * @throws {Error} if that takes longer than `limitMs` of it
   */
  async passUntil(condition: () => boolean, what: string, limitMs: number): Promise<void> {
    const endMs = this.#nowMs + limitMs;
    for (await this.#settled(); !condition();) {
      if (this.#nextMs() <= endMs) await this.#passTo(this.#nextMs());
      else await this.#waitFor(() => condition() || this.#nextMs() <= endMs, `${what}, in ${limitMs} ms`);
    }
  }

  /** Lets the next wait that is no longer than `maxMs` pass, once such a wait has begun; returns how long it was. */
  async passWait(maxMs: number): Promise<number> {
    const find = (): Sleeper | undefined => [...this.#sleepers].find(({ ms }) => ms <= maxMs);
    await this.#waitFor(() => find() !== undefined, `a wait of up to ${maxMs} ms`);
    const sleeper = find();
    await this.#passTo(sleeper?.dueMs ?? 0);
    return sleeper?.ms ?? 0;
  }

  /** For what takes no time of this clock: a file that is read, a slow machine. */
  async #waitFor(condition: () => boolean, what: string): Promise<void> {
    const deadlineMs = performance.now() + PATIENCE_MS;
    while (!condition()) {
      if (performance.now() > deadlineMs) throw new Error(`Not by the clock: ${what}`);
      await this.#settled();
    }
  }

  async #passTo(dueMs: number): Promise<void> {
    this.#nowMs = Math.max(this.#nowMs, dueMs);
    for (const sleeper of [...this.#sleepers]) if (sleeper.dueMs <= this.#nowMs) sleeper.wake();
    await this.#settled();
  }

  #nextMs(): number {
    return Math.min(...[...this.#sleepers].map(({ dueMs }) => dueMs));
  }

  async #settled(): Promise<void> {
    const { requestMs, patience = 1_000 } = this.#options;
    const isAsking = (): boolean => [...this.#sleepers].some(({ ms }) => ms === requestMs);
    let turns = 0;
    do {
      for (let turn = 0; turn < TURNS; turn++) await new Promise((resolve) => setTimeout(resolve, 1));
      turns += TURNS;
    } while (isAsking() && turns < patience);
  }
}
