/**
 * File descriptors: how many may be given to clients without taking those that the tools need.
 *
 * @module
 */
import { type Clock, systemClock } from "./clock.ts";

/** Descriptors that programs writing rules, the API server's connections and files need at most at the same time. */
const RESERVED = 96;
/** Descriptors that are measured, and then given without measuring again, at a time. */
const STEP = 32;
/** Descriptors that the programs of a preflight need at the same time, with some to spare. */
const ENOUGH = 16;
/** How long "there are none" is believed before it is measured again. */
const EMPTY_MS = 1_000;

/** Options of a {@linkcode DescriptorAllowance}. */
export interface DescriptorAllowanceOptions {
  /** Number of files that can be opened now, counted up to `atMost`. @default {countSpareDescriptors} */
  readonly count?: (atMost: number) => number;
  /** Milliseconds, monotonic. @default {performance.now} */
  readonly nowMs?: () => number;
  /** Descriptors that stay free. @default {96} */
  readonly reserved?: number;
}

/**
 * Gives descriptors to sockets as long as enough are left for everything else. The limit of the process itself cannot be read:
 * the runtime does not expose it and keeps `/proc` closed.
 */
export class DescriptorAllowance {
  readonly #count: (atMost: number) => number;
  readonly #nowMs: () => number;
  readonly #reserved: number;
  #assured = 0;
  #emptyUntilMs = Number.NEGATIVE_INFINITY;

  constructor(
    { count = countSpareDescriptors, nowMs = () => performance.now(), reserved = RESERVED }:
      DescriptorAllowanceOptions = {},
  ) {
    this.#count = count;
    this.#nowMs = nowMs;
    this.#reserved = reserved;
  }

  /** True if one more socket may be kept open. */
  take(): boolean {
    if (this.#assured === 0) {
      const nowMs = this.#nowMs();
      if (nowMs < this.#emptyUntilMs) return false;
      this.#assured = Math.max(0, this.#count(this.#reserved + STEP) - this.#reserved);
      if (this.#assured === 0) {
        this.#emptyUntilMs = nowMs + EMPTY_MS;
        return false;
      }
    }
    this.#assured--;
    return true;
  }

  /** A descriptor that was taken is closed. */
  giveBack(): void {
    this.#assured = Math.min(this.#assured + 1, STEP);
  }

  /** The system has refused a descriptor: those that were assured are not there. */
  exhausted(): void {
    this.#assured = 0;
    this.#emptyUntilMs = this.#nowMs() + EMPTY_MS;
  }
}

/** True if the process, or the whole system, has no descriptor left. */
export function isOutOfDescriptors(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "EMFILE" || error.code === "ENFILE");
}

/** How many more files this process could open now, counted up to `atMost`, by opening them: about 5 µs each. */
export function countSpareDescriptors(atMost: number): number {
  const files: Deno.FsFile[] = [];
  try {
    while (files.length < atMost) files.push(Deno.openSync("/dev/null"));
  } catch (error) {
    // Without a /dev/null it is unknown, and no reason to refuse a client.
    if (!isOutOfDescriptors(error)) return atMost;
  } finally {
    for (const file of files) file.close();
  }
  return files.length;
}

/** Options of {@linkcode untilDescriptors}. */
export interface DescriptorWait {
  readonly signal: AbortSignal;
  /** Called once, if there are too few. */
  readonly onWait: () => void;
  /** @default {countSpareDescriptors} */
  readonly count?: (atMost: number) => number;
  readonly clock?: Clock;
}

/**
 * Waits until enough files can be opened for something that would fail for good without, however long that takes: modules that are
 * loaded, of which the runtime panics from source if it cannot open their files, and programs that show what a node can do.
 *
 * @throws the reason of `signal`, if that ended the wait
 */
export async function untilDescriptors(
  { signal, onWait, count = countSpareDescriptors, clock = systemClock }: DescriptorWait,
): Promise<void> {
  for (let isFirst = true; count(ENOUGH) < ENOUGH; isFirst = false) {
    signal.throwIfAborted();
    if (isFirst) onWait();
    await clock.sleep(EMPTY_MS, signal);
  }
}

/**
 * From now on a stack trace is only the error's message while no file can be opened, for all callers: the logger,
 * which finds its caller there, or the errors of `node:` modules. From source, the runtime reads a file to find
 * the place of a frame, and panics where it cannot (Deno 2.9.6, when a first frame of that file is asked for).
 */
export function guardStackTraces(canOpenFiles: () => boolean = () => countSpareDescriptors(1) > 0): void {
  const prepareStackTrace = (error: unknown, frames: readonly unknown[]): string =>
    canOpenFiles() ? [error, ...frames.map((frame) => `    at ${frame}`)].join("\n") : String(error);
  Object.assign(Error, { prepareStackTrace });
}
