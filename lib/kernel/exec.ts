/**
 * The one place that starts programs. Nothing else in kproxy touches `Deno.Command`; the lint plugin holds that.
 *
 * @module
 */
import { ExecError } from "../errors.ts";

/** What a program left behind. */
export interface ExecResult {
  /** Exit status; 128 + signal number if it was killed. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Text for a program: at once, or in pieces that are made as the program reads them, anew for each run. */
export type Input = string | (() => Iterable<string>);

/** All of an input as one text. */
export function wholeText(input: Input): string {
  return typeof input === "string" ? input : [...input()].join("");
}

/** Options of one run. */
export interface ExecOptions {
  /** Text for standard input; without it standard input is empty. */
  readonly stdin?: Input;
  /** Kills the program after this many milliseconds. */
  readonly timeoutMs?: number;
  /** Added to the environment of this process, which is passed on as a whole. */
  readonly env?: Readonly<Record<string, string>>;
  /** Once aborted, ends the program, or keeps it from being started. */
  readonly signal?: AbortSignal;
}

/** Runs programs. The real one is {@linkcode systemExec}; tests use stateful fakes proven equal to it. */
export interface Exec {
  /**
   * Runs `argv` to its end, whatever its status.
   *
   * @throws {ExecError} with code -1 if it could not be started (missing, not permitted)
   * @throws the reason of `signal`, if that kept it from being started or from its good end
   */
  run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult>;
}

const decoder = new TextDecoder();
const encoder = new TextEncoder();

/** Runs programs of this machine, found on its PATH, under the process's `--allow-run` list. */
export const systemExec: Exec = {
  async run(argv, options = {}) {
    const [program, ...args] = argv;
    if (program === undefined) throw new TypeError("Cannot run an empty command");
    options.signal?.throwIfAborted();
    using end = new Ending(options);
    try {
      const child = new Deno.Command(program, {
        args,
        stdin: options.stdin === undefined ? "null" : "piped",
        stdout: "piped",
        stderr: "piped",
        signal: end.signal,
        ...(options.env === undefined ? {} : { env: { ...options.env } }),
      }).spawn();
      // Reading must start before writing: a full output pipe would stop the program, and with it our own write.
      const output = child.output();
      if (options.stdin !== undefined) await feed(child.stdin, options.stdin);
      const { code, stdout, stderr } = await output;
      if (code !== 0) options.signal?.throwIfAborted();
      return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
    } catch (error) {
      if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotCapable) {
        throw new ExecError(argv, -1, error.message, { cause: error });
      }
      throw error;
    }
  },
};

/** Why a program may be ended before its own end. Nothing of it stays with a signal that outlives the program. */
class Ending implements Disposable {
  readonly #end = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #abort = (): void => this.#end.abort();

  constructor({ timeoutMs, signal }: ExecOptions) {
    this.#outer = signal;
    signal?.addEventListener("abort", this.#abort);
    if (timeoutMs !== undefined) this.#timer = setTimeout(this.#abort, timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
  }
}

async function feed(stdin: WritableStream<Uint8Array>, input: Input): Promise<void> {
  const writer = stdin.getWriter();
  try {
    for (const piece of typeof input === "string" ? [input] : input()) {
      await writer.write(encoder.encode(piece));
    }
    await writer.close();
  } catch (error) {
    // A program that ends without reading its input closes the pipe; its status says what happened.
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

/**
 * Runs `argv` and returns its standard output.
 *
 * @throws {ExecError} if it ends with a status other than 0
 */
export async function runOk(exec: Exec, argv: readonly string[], options?: ExecOptions): Promise<string> {
  const { code, stdout, stderr } = await exec.run(argv, options);
  if (code !== 0) throw new ExecError(argv, code, stderr);
  return stdout;
}
