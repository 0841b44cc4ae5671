/**
 * The one place that starts programs. Nothing else in kproxy touches `Deno.Command`; the lint plugin holds that.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { readOutput } from "./read_output.ts";

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
  /**
   * The same command line will be run again, with other input, and the time that takes matters: once it has ended well, the
   * next one is started ahead. It waits for its input until it is run, or until `signal` ends it; without one, or with `env`,
   * nothing is started ahead. Only for programs that do nothing until they have read.
   */
  readonly again?: boolean;
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

const encoder = new TextEncoder();

/**
 * A program that has been started; {@linkcode StartedProgram.finish} takes it to its end. Reading its output begins at once: a full
 * pipe would stop the program, and with it whoever writes to it.
 */
class StartedProgram {
  readonly #child: Deno.ChildProcess;
  /** Null: it has none, or somebody feeds it. */
  #input: WritableStream<Uint8Array> | null;
  readonly #result: Promise<ExecResult>;
  readonly #end = new AbortController();
  #isRunning = true;

  /** @throws {ExecError} with code -1 if it could not be started */
  constructor(argv: readonly string[], { stdin, env }: ExecOptions) {
    const [program, ...args] = argv;
    if (program === undefined) throw new TypeError("Cannot run an empty command");
    try {
      this.#child = new Deno.Command(program, {
        args,
        stdin: stdin === undefined ? "null" : "piped",
        stdout: "piped",
        stderr: "piped",
        signal: this.#end.signal,
        ...(env === undefined ? {} : { env: { ...env } }),
      }).spawn();
    } catch (error) {
      if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotCapable) {
        throw new ExecError(argv, -1, error.message, { cause: error });
      }
      throw error;
    }
    this.#input = stdin === undefined ? null : this.#child.stdin;
    this.#result = this.#readResult();
    // Whoever finishes it hears of a failure, too; one that is ended before has nobody to tell.
    this.#result.then(() => this.#ended(), () => this.#ended());
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  end(): void {
    this.#end.abort();
  }

  async finish({ stdin, signal, timeoutMs }: ExecOptions): Promise<ExecResult> {
    const end = (): void => this.end();
    signal?.addEventListener("abort", end);
    const timer = timeoutMs === undefined ? undefined : setTimeout(end, timeoutMs);
    try {
      const input = this.#input;
      this.#input = null;
      if (input !== null && stdin !== undefined) await feed(input, stdin);
      const result = await this.#result;
      if (result.code !== 0) signal?.throwIfAborted();
      return result;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }

  async #readResult(): Promise<ExecResult> {
    const [stdout, stderr, { code }] = await Promise.all([
      readOutput(this.#child.stdout),
      readOutput(this.#child.stderr),
      this.#child.status,
    ]);
    return { code, stdout, stderr };
  }

  #ended(): void {
    this.#isRunning = false;
    // Nobody has fed it, and its reader is gone, which closing may find out.
    void this.#input?.close().catch(ignoreBrokenPipe);
  }
}

/** A program is started ahead when it has not been run for so long: not between the transactions of one sync. */
const AHEAD_AFTER_MS = 20;

/** One program that waits for its input, or soon will. */
interface AheadProgram {
  started: StartedProgram | undefined;
  /** Keeps it from being started, and from ending with its signal. */
  readonly release: () => void;
}

/** Programs started before somebody needs them, one of each command line. */
class AheadPrograms {
  readonly #programs = new Map<string, AheadProgram>();

  /** The one that waits, if one does. It is the caller's from now on. */
  take(argv: readonly string[]): StartedProgram | undefined {
    const key = JSON.stringify(argv);
    const program = this.#programs.get(key);
    if (program === undefined) return undefined;
    this.#programs.delete(key);
    program.release();
    return program.started?.isRunning === true ? program.started : undefined;
  }

  /** Starts one soon, which ends with `signal`. */
  prepare(argv: readonly string[], signal: AbortSignal): void {
    const key = JSON.stringify(argv);
    if (signal.aborted || this.#programs.has(key)) return;
    const end = (): void => this.take(argv)?.end();
    const timer = setTimeout(() => {
      try {
        program.started = new StartedProgram(argv, { stdin: "" });
      } catch (error) {
        // The next run says so, if that is still so then.
        if (!(error instanceof ExecError)) throw error;
      }
    }, AHEAD_AFTER_MS);
    const program: AheadProgram = {
      started: undefined,
      release: () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
      },
    };
    signal.addEventListener("abort", end);
    this.#programs.set(key, program);
  }
}

/** Runs programs of this machine, found on its PATH, under the process's `--allow-run` list. */
class SystemExec implements Exec {
  readonly #ahead = new AheadPrograms();

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { stdin, env, signal, again } = options;
    signal?.throwIfAborted();
    const canWait = again === true && stdin !== undefined && env === undefined && signal !== undefined;
    const ahead = canWait ? this.#ahead.take(argv) : undefined;
    const result = await (ahead ?? new StartedProgram(argv, options)).finish(options);
    // What fails may have lost what it needs, or may be about to be replaced: the next run finds out by itself.
    if (canWait && result.code === 0) this.#ahead.prepare(argv, signal);
    return result;
  }
}

/** The {@linkcode Exec} of this machine. */
export const systemExec: Exec = new SystemExec();

/** A program that ends without reading its input closes the pipe; its status says what happened. */
function ignoreBrokenPipe(error: unknown): void {
  if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
}

async function feed(stdin: WritableStream<Uint8Array>, input: Input): Promise<void> {
  const writer = stdin.getWriter();
  try {
    for (const piece of typeof input === "string" ? [input] : input()) {
      await writer.write(encoder.encode(piece));
    }
    await writer.close();
  } catch (error) {
    ignoreBrokenPipe(error);
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
