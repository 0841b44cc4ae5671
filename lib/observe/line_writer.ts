/**
 * Lines on their way to a stream that may be closed, full or not read: the writer neither fails nor waits.
 *
 * @module
 */
import { within } from "../kernel/clock.ts";

/** Dependencies of a {@linkcode LineWriter}. */
export interface LineWriterOptions {
  /** Writes some of the bytes, without holding up the program; resolves to how many. */
  readonly write: (bytes: Uint8Array) => Promise<number>;
  /** Takes the lines that this stream refuses. */
  readonly fallback?: LineWriter;
  /** Most text kept while the stream takes nothing, in UTF-16 units. @default {1048576} */
  readonly maxQueued?: number;
}

const MAX_QUEUED = 1024 * 1024;
/** Pause before a full pipe is tried again that the parent process has made non-blocking. */
const FULL_PIPE_PAUSE_MS = 20;

const encoder = new TextEncoder();

/** Writes lines in their order, many at a time; those that cannot be written are dropped and counted. */
export class LineWriter {
  readonly #options: LineWriterOptions;
  #queue: string[] = [];
  #queued = 0;
  #writing: Promise<void> | null = null;
  #dropped = 0;
  /** Dropped lines that are not reported yet. */
  #untold = 0;

  /** Called with the number of dropped lines once the stream takes lines again. */
  onResumed: (dropped: number) => void = () => {};

  constructor(options: LineWriterOptions) {
    this.#options = options;
  }

  /** How many lines were dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes a line, its end included. */
  write(line: string): void {
    if (this.#queued + line.length > (this.#options.maxQueued ?? MAX_QUEUED)) {
      this.#lose([line]);
      return;
    }
    this.#queue.push(line);
    this.#queued += line.length;
    this.#writing ??= this.#writeAll();
  }

  /** Resolves when every line is with the system, or after so many milliseconds. */
  async flush(limitMs: number): Promise<void> {
    const { fallback } = this.#options;
    // Lines that are refused here go to the fallback.
    await within(Promise.resolve(this.#writing).then(() => fallback?.flush(limitMs)), limitMs);
  }

  async #writeAll(): Promise<void> {
    while (this.#queue.length > 0) {
      const lines = this.#queue;
      this.#queue = [];
      const written = await this.#writeLines(lines);
      this.#queued -= lines.reduce((sum, line) => sum + line.length, 0);
      if (written < lines.length) this.#lose(lines.slice(written));
      else if (this.#untold > 0) this.#report();
    }
    this.#writing = null;
  }

  #report(): void {
    const dropped = this.#untold;
    this.#untold = 0;
    this.onResumed(dropped);
  }

  /** How many of the lines the stream has taken whole. */
  async #writeLines(lines: readonly string[]): Promise<number> {
    const bytes = encoder.encode(lines.join(""));
    let at = 0;
    while (at < bytes.length) {
      try {
        at += await this.#options.write(bytes.subarray(at));
      } catch (error) {
        if (!(error instanceof Deno.errors.WouldBlock)) return lineEnds(bytes.subarray(0, at));
        await new Promise((resolve) => setTimeout(resolve, FULL_PIPE_PAUSE_MS));
      }
    }
    return lines.length;
  }

  #lose(lines: readonly string[]): void {
    const { fallback } = this.#options;
    if (fallback !== undefined) {
      for (const line of lines) fallback.write(line);
      return;
    }
    this.#dropped += lines.length;
    this.#untold += lines.length;
  }
}

function lineEnds(bytes: Uint8Array): number {
  let count = 0;
  for (const byte of bytes) if (byte === 10) count++;
  return count;
}

/** The two streams of a log. Neither of them fails or waits. */
export interface LogStreams {
  readonly out: LogStream;
  readonly err: LogStream;
  /** Resolves when every line is with the system, or when that takes too long. */
  flush(): Promise<void>;
}

/** One stream of a log. */
export type LogStream = Pick<LineWriter, "write" | "dropped" | "onResumed">;
