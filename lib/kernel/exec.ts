/**
 * The one place that starts programs. Nothing else in kproxy touches `Deno.Command`; the lint plugin holds that.
 *
 * @module
 */
import { ExecError, NOT_STARTED_CODE } from "../errors.ts";
import { readOutput } from "./read_output.ts";
import { listLimitMs, TimeLimit } from "./time_limit.ts";

/** What a program left behind. */
export interface ExecResult {
  /** Exit status. */
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
  /**
   * Ends the program after this many milliseconds. Without it, after a time that no program needs: minutes, and more of them for a
   * long input.
   */
  readonly timeoutMs?: number;
  /** About how many entries it lists, where that may be a million: it is given time for each, and may print so much more. */
  readonly entries?: number;
  /** Added to the environment of this process, which is passed on as a whole. */
  readonly env?: Readonly<Record<string, string>>;
  /** Once aborted, ends the program, or keeps it from being started. */
  readonly signal?: AbortSignal;
  /**
   * Takes what it prints as it comes, and `stdout` of the result is empty: for outputs of megabytes. The bytes change after the call.
   * Programs in memory may have all of it in the result all the same.
   */
  readonly onStdout?: (bytes: Uint8Array) => void;
}

/** Runs programs. The real one is {@linkcode systemExec}; tests use stateful fakes proven equal to it. */
export interface Exec {
  /**
   * Runs `argv` to its end, whatever its status.
   *
   * @throws {ExecError} with code -1 if it is missing or not permitted; with `isInconclusive()` if it could not be started, was
   *   killed, did not end in time, or printed without an end: then there is no status that would say anything
   * @throws the reason of `signal`, if that kept it from being started or from its good end
   */
  run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult>;
}

const encoder = new TextEncoder();

/** How long a program that was told to end may take for it, before it is killed. */
const KILL_GRACE_MS = 1_000;
/** How long to wait for one that was killed: one that hangs in the kernel does not even end then. */
const ABANDON_MS = 1_000;
/** How long to wait for output that a killed program may have left in its pipes. */
const DRAIN_MS = 100;
/** How long nothing must come from the pipes of one that has ended by itself before they are left to the process that still holds them. */
const HELD_MS = 2_000;
/** All rules of 44,000 Services are tens of megabytes. */
const MAX_STDOUT_BYTES = 128 * 2 ** 20;
/** Of each entry of a list, beside that: with comments and what belongs to it. */
const BYTES_PER_ENTRY = 256;
/** Complaints of 100,000 lines. */
const MAX_STDERR_BYTES = 16 * 2 ** 20;

/**
 * A program that has been started; {@linkcode StartedProgram.finish} takes it to its end. Reading its output begins at once: a full
 * pipe would stop the program, and with it its writer.
 */
class StartedProgram {
  readonly #argv: readonly string[];
  readonly #child: Deno.ChildProcess;
  /** Null: it has none, or the caller writes it. */
  #input: WritableStream<Uint8Array> | null;
  readonly #result: Promise<ExecResult>;
  /** Aborted: nothing more is read or written, even if another process holds the other ends of its pipes. */
  readonly #cut = new AbortController();
  /** Aborted with its end: no process is left that is meant to read the rest of its input. */
  readonly #over = new AbortController();
  /** True: it waits for nothing, and may not have read all. */
  #isAbandoned = false;
  /** What it printed too much of, in words; null as long as it has not. */
  #excess: string | null = null;
  #readBytes = 0;
  #isRunning = true;
  #isEnding = false;
  #timers: ReturnType<typeof setTimeout>[] = [];

  /** @throws {ExecError} if it could not be started */
  constructor(argv: readonly string[], { stdin, env, onStdout, entries = 0 }: ExecOptions) {
    this.#argv = argv;
    this.#child = spawn(argv, stdin === undefined ? "null" : "piped", env);
    this.#input = stdin === undefined ? null : this.#child.stdin;
    this.#result = this.#readResult(onStdout, MAX_STDOUT_BYTES + entries * BYTES_PER_ENTRY);
    // finish() reports a failure, too; for one that is ended before, nothing does.
    this.#result.then(() => this.#ended(), () => this.#ended());
  }

  /** Ends it: asked first, killed if it does not listen, and let go of if even that does not help. */
  end(): void {
    if (this.#isEnding || !this.#isRunning) return;
    this.#isEnding = true;
    this.#kill("SIGTERM");
    this.#after(KILL_GRACE_MS, () => {
      this.#kill("SIGKILL");
      this.#after(ABANDON_MS, () => this.#abandon());
    });
    // What it has started itself lives on, maybe, and holds its pipes.
    void this.#child.status.then(() => this.#after(DRAIN_MS, () => this.#abandon()));
  }

  /** @throws as {@linkcode Exec.run} */
  async finish({ stdin, signal, entries, timeoutMs = listLimit(entries) }: ExecOptions): Promise<ExecResult> {
    const end = (): void => this.end();
    signal?.addEventListener("abort", end);
    const limit = new TimeLimit(timeoutMs, end);
    try {
      const input = this.#input;
      this.#input = null;
      if (input !== null && stdin !== undefined) await feed(input, stdin, limit, this.#over.signal);
      const result = await this.#result;
      // One that ended well just before it was told to has done its work, unless some of what it said was not read.
      if (this.#excess !== null) {
        throw new ExecError(this.#argv, KILLED_CODE, this.#excess);
      }
      if (result.code !== 0 || this.#isAbandoned) {
        signal?.throwIfAborted();
        const { exceededMs } = limit;
        if (exceededMs !== null) {
          throw new ExecError(this.#argv, result.code, result.stderr, { timedOutMs: exceededMs });
        }
      }
      if (await this.#wasKilled()) throw new ExecError(this.#argv, result.code, result.stderr);
      return result;
    } finally {
      limit.stop();
      signal?.removeEventListener("abort", end);
    }
  }

  async #readResult(onPiece: ExecOptions["onStdout"], maxBytes: number): Promise<ExecResult> {
    const until = this.#cut.signal;
    const abandoned = new Promise<null>((resolve) => {
      until.addEventListener("abort", () => resolve(null), { once: true });
    });
    void this.#child.status.then(() => this.#leaveHeldPipes());
    const [stdout, stderr, status] = await Promise.all([
      readOutput(this.#child.stdout, {
        until,
        onPiece,
        maxBytes,
        onBytes: this.#counter("output", maxBytes),
      }),
      readOutput(this.#child.stderr, {
        until,
        maxBytes: MAX_STDERR_BYTES,
        onBytes: this.#counter("errors", MAX_STDERR_BYTES),
      }),
      Promise.race([this.#child.status, abandoned]),
    ]);
    return { code: status?.code ?? KILLED_CODE, stdout, stderr };
  }

  /** Ends the program once it has printed more of that than anything that is meant. */
  #counter(what: string, maxBytes: number): (bytes: number) => void {
    let total = 0;
    return (bytes) => {
      this.#readBytes += bytes;
      total += bytes;
      if (total <= maxBytes || this.#excess !== null) return;
      this.#excess = `It printed more than ${maxBytes / 2 ** 20} MiB of ${what}`;
      this.end();
    };
  }

  /**
   * It has ended, and a process that it started may hold its pipes for ever: what has been printed by then is all there is. What
   * it printed itself is read first, however long that takes.
   */
  #leaveHeldPipes(): void {
    const before = this.#readBytes;
    this.#after(HELD_MS, () => {
      if (this.#readBytes === before) this.#cut.abort();
      else this.#leaveHeldPipes();
    });
  }

  #abandon(): void {
    this.#isAbandoned = true;
    this.#cut.abort();
  }

  async #wasKilled(): Promise<boolean> {
    return !this.#isAbandoned && (await this.#child.status).signal !== null;
  }

  #ended(): void {
    this.#isRunning = false;
    this.#over.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    // Nothing was written, and its reader is gone, which closing may find out.
    void this.#input?.close().catch(ignoreBrokenPipe);
  }

  #kill(signal: Deno.Signal): void {
    try {
      this.#child.kill(signal);
    } catch (error) {
      // It has ended in the meantime, which its status tells.
      if (!(error instanceof TypeError || error instanceof Deno.errors.NotFound)) throw error;
    }
  }

  #after(ms: number, then: () => void): void {
    if (this.#isRunning) this.#timers.push(setTimeout(then, ms));
  }
}

/** Undefined: what a program may take that lists nothing in particular. */
function listLimit(entries: number | undefined): number | undefined {
  return entries === undefined ? undefined : listLimitMs(entries);
}

/** 128 + SIGKILL. */
const KILLED_CODE = 137;

/** @throws {ExecError} if it could not be started */
function spawn(
  argv: readonly string[],
  stdin: "null" | "piped",
  env: ExecOptions["env"],
): Deno.ChildProcess {
  const [program, ...args] = argv;
  if (program === undefined) throw new TypeError("Cannot run an empty command");
  try {
    return new Deno.Command(program, {
      args,
      stdin,
      stdout: "piped",
      stderr: "piped",
      ...(env === undefined ? {} : { env: { ...env } }),
    }).spawn();
  } catch (error) {
    // Of the arguments, which are our own.
    if (!(error instanceof Error) || error instanceof TypeError) throw error;
    throw new ExecError(argv, isAbsent(error) ? -1 : NOT_STARTED_CODE, error.message, { cause: error });
  }
}

function isAbsent(error: Error): boolean {
  const { NotFound, NotCapable, PermissionDenied } = Deno.errors;
  return error instanceof NotFound || error instanceof NotCapable || error instanceof PermissionDenied;
}

/** Runs programs of this machine, found on its PATH, under the process's `--allow-run` list. */
class SystemExec implements Exec {
  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    options.signal?.throwIfAborted();
    return await new StartedProgram(argv, options).finish(options);
  }
}

/** The {@linkcode Exec} of this machine. */
export const systemExec: Exec = new SystemExec();

/** A program that ends without reading its input closes the pipe; its status says what happened. */
function ignoreBrokenPipe(error: unknown): void {
  if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
}

/**
 * Writes all of the input, as fast as it is read; gives up once `over` is aborted, although another process may hold the other end of the
 * pipe. Ours is closed then, but for a write that waits for room in the pipe: the runtime can end none, so that one is closed with the
 * last who holds the other end.
 */
async function feed(
  stdin: WritableStream<Uint8Array>,
  input: Input,
  limit: TimeLimit,
  over: AbortSignal,
): Promise<void> {
  const released = new Promise<void>((resolve) => {
    if (over.aborted) return resolve();
    over.addEventListener("abort", () => resolve(), { once: true });
  });
  await Promise.race([feedAll(stdin, input, limit, over), released]);
}

async function feedAll(
  stdin: WritableStream<Uint8Array>,
  input: Input,
  limit: TimeLimit,
  over: AbortSignal,
): Promise<void> {
  const writer = stdin.getWriter();
  try {
    for (const text of typeof input === "string" ? [input] : input()) {
      // Nothing of it is for others, whatever room they make in the pipe.
      if (over.aborted) break;
      const piece = encoder.encode(text);
      limit.extend(piece.byteLength);
      await writer.write(piece);
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
