/**
 * What a herd of clients asks of a server, second by second, and when all of it is in step.
 *
 * @module
 */
import { quantile } from "./figures.ts";

/** What an incident made of a herd. Times in seconds. */
export interface HerdFigures {
  /** Answered requests in the busiest second. */
  readonly peakPerSecond: number;
  readonly codes: Readonly<Record<string, number>>;
  readonly megabytes: number;
  /** From the end of the incident until half of the clients, 99 % of them, all of them were in step. */
  readonly recovered: { readonly p50: number; readonly p99: number; readonly all: number };
  /** Answered requests in each second since the incident began. */
  readonly series: readonly number[];
}

/** One second of a herd. */
interface Second {
  /** Requests that got an answer, by status; `<error>`: those that got none. */
  codes: Map<string, number>;
  /** Of all bodies. */
  bytes: number;
}

const FAILED = "<error>";
const LOOK_MS = 20;

/** Counts for all clients of a herd. */
export class HerdCounts {
  readonly clients: number;
  readonly #kinds: number;
  /** By client, how many of its kinds are in step. */
  readonly #inStep: number[];
  /** When a client last came into step; NaN while it is not. */
  readonly #sinceMs: number[];
  #whole = 0;
  #seconds: Second[] = [];
  #beginMs = performance.now();
  /** The first answer since the server went away; NaN until there is one. */
  #answeredMs = NaN;

  constructor(clients: number, kinds: number) {
    this.clients = clients;
    this.#kinds = kinds;
    this.#inStep = new Array(clients).fill(0);
    this.#sinceMs = new Array(clients).fill(NaN);
  }

  /** A request got an answer, or none (`<error>`). */
  answered(code: string): void {
    const { codes } = this.#second();
    if (code !== FAILED && Number.isNaN(this.#answeredMs)) this.#answeredMs = performance.now();
    codes.set(code, (codes.get(code) ?? 0) + 1);
  }

  received(bytes: number): void {
    this.#second().bytes += bytes;
  }

  /** One kind of a client follows the server, or does no longer. */
  follows(client: number, isFollowing: boolean): void {
    const before = this.#inStep[client] ?? 0;
    const now = before + (isFollowing ? 1 : -1);
    this.#inStep[client] = now;
    if (now === this.#kinds) {
      this.#whole++;
      this.#sinceMs[client] = performance.now();
    } else if (before === this.#kinds) {
      this.#whole--;
      this.#sinceMs[client] = NaN;
    }
  }

  get areAllInStep(): boolean {
    return this.#whole === this.clients;
  }

  /** An incident begins: what was before does not count. */
  begin(): void {
    this.#seconds = [];
    this.#beginMs = performance.now();
  }

  /** The server is away. */
  away(): void {
    this.#answeredMs = NaN;
  }

  /** When it answered again, by `performance.now()`; NaN if it has not. */
  get backMs(): number {
    return this.#answeredMs;
  }

  /** Resolves when all clients are in step. @throws {Error} after `timeoutMs` */
  async untilAllInStep(timeoutMs: number): Promise<void> {
    const deadlineMs = performance.now() + timeoutMs;
    while (!this.areAllInStep) {
      if (performance.now() > deadlineMs) {
        const said = JSON.stringify(this.figures(this.#beginMs).codes);
        throw new Error(`Only ${this.#whole} of ${this.clients} clients are in step: ${said}`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** @param endMs when the incident ended, by `performance.now()` */
  figures(endMs: number): HerdFigures {
    const codes: Record<string, number> = {};
    const seconds = Array.from(this.#seconds, (second) => second ?? { codes: new Map(), bytes: 0 });
    for (const second of seconds) {
      for (const [code, count] of second.codes) codes[code] = (codes[code] ?? 0) + count;
    }
    const series = seconds.map((second) =>
      [...second.codes].reduce((sum, [code, count]) => code === FAILED ? sum : sum + count, 0)
    );
    const times = this.#sinceMs.filter((ms) => !Number.isNaN(ms)).map((ms) => Math.max(0, ms - endMs) / 1000);
    return {
      peakPerSecond: Math.max(0, ...series),
      codes,
      megabytes: seconds.reduce((sum, { bytes }) => sum + bytes, 0) / 1e6,
      recovered: times.length === 0
        ? { p50: NaN, p99: NaN, all: NaN }
        : { p50: quantile(times, 0.5), p99: quantile(times, 0.99), all: quantile(times, 1) },
      series,
    };
  }

  #second(): Second {
    const at = Math.floor((performance.now() - this.#beginMs) / 1000);
    return this.#seconds[at] ??= { codes: new Map(), bytes: 0 };
  }
}
