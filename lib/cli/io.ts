/**
 * Where a command writes, and the signals that end it. The real writer is {@linkcode systemIo}; tests collect.
 *
 * @module
 */
import { LineWriter, type LogStreams } from "../observe/line_writer.ts";
import { cut, escaped, escapedJson } from "../text/quote.ts";

/** The reader of a command's output has closed it. */
export class OutputClosedError extends Error {
  override readonly name = "OutputClosedError";
}

/** A terminal on which long work shows how far it is. */
export interface Terminal {
  /** Columns at this moment. */
  columns(): number;
  /** Rows at this moment. Absent: unknown. */
  rows?(): number;
  /** Takes the bytes, or the first part of them, and says how many. */
  writeSync(bytes: Uint8Array): number;
}

/** The output streams of a command. */
export interface Io {
  /**
   * Writes text to standard output.
   *
   * @throws {OutputClosedError} if the output's reader is gone
   */
  out(text: string): Promise<void>;
  /** Writes text to standard error, before it returns, as far as the stream takes it. */
  err(text: string): void;
  /** Streams of log lines. */
  readonly log: LogStreams;
  /** Standard error where it is a terminal; null or absent elsewhere, and then nothing is drawn. */
  readonly terminal?: Terminal | null;
  /** Standard output where it is a terminal, for what is drawn again and again. */
  readonly screen?: Terminal | null;
}

const encoder = new TextEncoder();
const FULL_PIPE_PAUSE_MS = 1;
/** How long the shutdown waits for the reader of the log. */
const FLUSH_LIMIT_MS = 1_000;

/** The streams of this program. Text is with the system when a call returns, so that an exit loses nothing. */
export const systemIo: Io = {
  // deno-lint-ignore require-await -- a failure must come as a rejection.
  async out(text) {
    try {
      writeAll(Deno.stdout, text);
    } catch (cause) {
      if (cause instanceof Deno.errors.BrokenPipe) {
        throw new OutputClosedError("the reader closed the output", { cause });
      }
      throw cause;
    }
  },
  err(text) {
    try {
      // Names and messages of others may be in the text.
      writeAll(Deno.stderr, printableLines(text));
    } catch (error) {
      // No reader is left; the exit code still says what it would have.
      void error;
    }
  },
  log: systemLog(),
  // Getters: only code that draws asks for them.
  get terminal() {
    return terminalOf(Deno.stderr);
  },
  get screen() {
    return terminalOf(Deno.stdout);
  },
};

const USUAL_COLUMNS = 80;
const USUAL_ROWS = 24;

/** The stream as a terminal; null if it is none. */
export function terminalOf(stream: Pick<typeof Deno.stderr, "isTerminal" | "writeSync">): Terminal | null {
  if (!stream.isTerminal()) return null;
  return {
    columns: () => consoleSize().columns,
    rows: () => consoleSize().rows,
    writeSync: (bytes) => stream.writeSync(bytes),
  };
}

function consoleSize(): { readonly columns: number; readonly rows: number } {
  try {
    const { columns, rows } = Deno.consoleSize();
    // Some terminals, such as those of container runtimes, say 0.
    return { columns: columns || USUAL_COLUMNS, rows: rows || USUAL_ROWS };
  } catch (error) {
    // Closed meanwhile. The next write finds out.
    void error;
    return { columns: USUAL_COLUMNS, rows: USUAL_ROWS };
  }
}

function systemLog(): LogStreams {
  const err = new LineWriter({ write: (bytes) => Deno.stderr.write(bytes) });
  // If standard output is closed, the line still belongs somewhere.
  const out = new LineWriter({ write: (bytes) => Deno.stdout.write(bytes), fallback: err });
  return { out, err, flush: () => out.flush(FLUSH_LIMIT_MS) };
}

function writeAll(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  for (let bytes = encoder.encode(text); bytes.length > 0;) {
    try {
      bytes = bytes.subarray(stream.writeSync(bytes));
    } catch (error) {
      // The parent process may have made the pipe non-blocking.
      if (!(error instanceof Deno.errors.WouldBlock)) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FULL_PIPE_PAUSE_MS);
    }
  }
}

/** Longest line that is shown: a rule may be megabytes long. */
const LONGEST_LINE = 20_000;

/** A line of a report, made fit for a terminal, and not longer than a person reads; documents have all of it. */
export function reportLine(text: string): string {
  return `${escaped(cut(text, LONGEST_LINE))}\n`;
}

/** Several lines, made fit for a terminal; they stay lines. */
function printableLines(text: string): string {
  return text.split("\n").map(escaped).join("\n");
}

/** JSON for programs, with control characters escaped that a terminal would obey, as people look at it, too. */
export function printableJson(document: unknown, indent = 2): string {
  return escapedJson(JSON.stringify(document, null, indent));
}

/** An abort signal that the first of these signals aborts, until it is disposed of. */
export class EndedBySignals implements Disposable {
  readonly #end = new AbortController();
  readonly #names: readonly Deno.Signal[];
  readonly #stop: () => void;

  /** @param reason of the abortion. @default {an AbortError} */
  constructor(names: readonly Deno.Signal[] = ["SIGINT", "SIGTERM", "SIGHUP"], reason?: Error) {
    // Windows has only SIGINT of these.
    this.#names = Deno.build.os === "windows" ? names.filter((name) => name === "SIGINT") : names;
    this.#stop = () => this.#end.abort(reason);
    for (const name of this.#names) Deno.addSignalListener(name, this.#stop);
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  [Symbol.dispose](): void {
    for (const name of this.#names) Deno.removeSignalListener(name, this.#stop);
  }
}
