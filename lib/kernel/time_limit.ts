/**
 * How long a program may run.
 *
 * @module
 */

/** A list of 100,000 rules takes 10 s: this is for machines that are ten times as slow. */
const BASE_MS = 120_000;
/** All rules of 44,000 Services are tens of megabytes, and take seconds: a hundred times that. */
const MS_PER_BYTE = 30_000 / 1_000_000;

/** How long a program may run that is given an input of so many bytes, unless the caller knows better. */
export function generousLimitMs(inputBytes: number): number {
  return BASE_MS + Math.ceil(inputBytes * MS_PER_BYTE);
}

/** nft takes 0.09 ms for each element that it lists, on a machine with nothing else to do. */
const MS_PER_ENTRY = 1;

/** How long a program may run that lists so many entries. */
export function listLimitMs(entries: number): number {
  return BASE_MS + entries * MS_PER_ENTRY;
}

/** For programs that look at, or change, a handful of things, however large the node. */
export const QUICK_LIMIT_MS = 10_000;

/** Tells once when a program has run for too long. */
export class TimeLimit {
  readonly #fixedMs: number | undefined;
  readonly #onExceeded: () => void;
  readonly #startMs = performance.now();
  #inputBytes = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #exceededMs: number | null = null;

  /** @param fixedMs without it, a time that grows with the input */
  constructor(fixedMs: number | undefined, onExceeded: () => void) {
    this.#fixedMs = fixedMs;
    this.#onExceeded = onExceeded;
    this.#arm();
  }

  /** The limit, once it was exceeded. */
  get exceededMs(): number | null {
    return this.#exceededMs;
  }

  /** The program is given so much more to read. */
  extend(bytes: number): void {
    this.#inputBytes += bytes;
    if (this.#fixedMs === undefined && this.#exceededMs === null) this.#arm();
  }

  /** It has ended. */
  stop(): void {
    clearTimeout(this.#timer);
  }

  #arm(): void {
    clearTimeout(this.#timer);
    const limitMs = this.#fixedMs ?? generousLimitMs(this.#inputBytes);
    this.#timer = setTimeout(() => {
      this.#exceededMs = limitMs;
      this.#onExceeded();
    }, limitMs - (performance.now() - this.#startMs));
  }
}
