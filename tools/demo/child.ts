/**
 * One program that the demo started and keeps running.
 *
 * @module
 */
import { signalChild } from "../end_programs.ts";

/** How to start a {@linkcode Child}. */
export interface ChildOptions {
  /** In the words of messages, e.g. "kproxy". */
  readonly name: string;
  readonly argv: readonly string[];
  /** Called with every line of standard output. */
  readonly onLine?: (line: string) => void;
  /** Called with every line of standard error. */
  readonly onErrorLine?: (line: string) => void;
  /** How a line of standard error reads when the program has died; as it is by default. */
  readonly showErrorLine?: (line: string) => string;
  /** Called if it ends without having been stopped. */
  readonly onDeath: (error: Error) => void;
}

const KEPT_LINES = 12;

/** Starts a program in a process group of its own: Ctrl-C at the terminal must reach the demo only, which then ends its programs in order. */
export function startProgram([program = "", ...args]: readonly string[]): Deno.ChildProcess {
  const piped = { stdin: "piped", stdout: "piped", stderr: "piped" } as const;
  return new Deno.Command(program, { args, ...piped, env: { NO_COLOR: "1" }, detached: true }).spawn();
}

/** A running program. It ends when it is stopped; if it ends before, `onDeath` hears of it. */
export class Child {
  readonly name: string;
  readonly pid: number;
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #lastLines: string[] = [];
  readonly #ended: Promise<Deno.CommandStatus>;
  #expected = false;

  constructor(options: ChildOptions) {
    this.name = options.name;
    this.#process = startProgram(options.argv);
    this.pid = this.#process.pid;
    this.#input = this.#process.stdin.getWriter();
    this.#input.closed.catch((error) => this.#keep(`(standard input: ${error.message})`));
    this.#ended = this.#watch(options);
  }

  /** Writes one line to its standard input. */
  async send(line: string): Promise<void> {
    await this.#input.write(new TextEncoder().encode(`${line}\n`));
  }

  /** Ends it with a signal, and with SIGKILL if that takes longer than `graceMs`. */
  async stop(signal: "SIGTERM" | "SIGKILL", graceMs = 15_000): Promise<Deno.CommandStatus> {
    this.#expected = true;
    signalChild(this.#process, signal);
    const timer = setTimeout(() => signalChild(this.#process), graceMs);
    try {
      return await this.#ended;
    } finally {
      clearTimeout(timer);
    }
  }

  async #watch(options: ChildOptions): Promise<Deno.CommandStatus> {
    const { onLine, onErrorLine, showErrorLine = (line) => line, onDeath } = options;
    const read = [
      readLines(this.#process.stdout, (line) => onLine === undefined ? this.#keep(line) : onLine(line)),
      readLines(this.#process.stderr, (line) => {
        this.#keep(showErrorLine(line));
        onErrorLine?.(line);
      }),
    ];
    const status = await this.#process.status;
    await Promise.all(read);
    if (!this.#expected) onDeath(new ChildDeath(this.name, status, this.#lastLines));
    return status;
  }

  #keep(line: string): void {
    this.#lastLines.push(line);
    if (this.#lastLines.length > KEPT_LINES) this.#lastLines.shift();
  }
}

/** A program ended that should have gone on. */
export class ChildDeath extends Error {
  override readonly name = "ChildDeath";

  constructor(readonly child: string, status: Deno.CommandStatus, readonly lastLines: readonly string[]) {
    const how = status.signal === null ? `with status ${status.code}` : `by ${status.signal}`;
    super(`${child} ended by itself, ${how}`);
  }
}

async function readLines(stream: ReadableStream<Uint8Array>, take: (line: string) => void): Promise<void> {
  let rest = "";
  for await (
    const text of stream.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)
  ) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) take(line);
  }
  if (rest !== "") take(rest);
}
