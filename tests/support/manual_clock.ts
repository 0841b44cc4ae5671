/**
 * A clock that a test moves by hand, beside real connections.
 *
 * @module
 */
import type { Clock } from "../../lib/kernel/clock.ts";

/** How the clock detects requests under way, during which time must not pass. */
export interface ManualClockOptions {
  /** Length of a wait that is the limit of a request without an answer yet. */
  readonly requestMs: number;
  /** Number of event loop turns that such a request gets, of a millisecond or more each: a stalled machine uses up none of
   * them. @default {1000} */
  readonly patience?: number;
}

interface Sleeper {
  readonly ms: number;
  readonly dueMs: number;
  readonly wake: () => void;
}

/** Turns for answers over loopback to arrive, and to be processed: the event loop polls for all of them in each turn. */
const TURNS = 15;
const PATIENCE_MS = 300_000;

/** The clock; see the module. */
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

  /** Lets this much time pass: every wait ends at its time, and its consequences get real time to happen. */
  async pass(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms;
    await this.#settled();
    for (let dueMs = this.#nextMs(); dueMs <= endMs; dueMs = this.#nextMs()) await this.#passTo(dueMs);
    this.#nowMs = endMs;
  }

  /**
   * Lets time pass until the condition holds.
   *
   * @throws {Error} if it does not within `limitMs` of this clock
   */
  async passUntil(condition: () => boolean, what: string, limitMs: number): Promise<void> {
    const endMs = this.#nowMs + limitMs;
    for (await this.#settled(); !condition();) {
      if (this.#nextMs() <= endMs) await this.#passTo(this.#nextMs());
      else await this.#waitFor(() => condition() || this.#nextMs() <= endMs, `${what}, in ${limitMs} ms`);
    }
  }

  /** Ends the next wait of at most `maxMs`, once there is one; yields its length. */
  async passWait(maxMs: number): Promise<number> {
    const find = (): Sleeper | undefined => [...this.#sleepers].find(({ ms }) => ms <= maxMs);
    await this.#waitFor(() => find() !== undefined, `a wait of up to ${maxMs} ms`);
    const sleeper = find();
    await this.#passTo(sleeper?.dueMs ?? 0);
    return sleeper?.ms ?? 0;
  }

  /** Waits for work that takes no time of this clock: reading a file, a slow machine. */
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
