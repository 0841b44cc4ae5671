/**
 * The one place that starts programs. Nothing else in kproxy touches `Deno.Command`; the lint plugin holds that.
 *
 * @module
 */
import { ExecError, NOT_STARTED_CODE } from "../errors.ts";

/** Result of a program. */
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
  /** About how many entries the program lists, if a million is possible: each extends its time and output limits. */
  readonly entries?: number;
  /** Added to the environment of this process, which is passed on as a whole. */
  readonly env?: Readonly<Record<string, string>>;
  /** Once aborted, ends the program, or keeps it from being started. */
  readonly signal?: AbortSignal;
  /**
   * Receives its output as it comes, and `stdout` of the result is empty: for outputs of megabytes. The bytes
   * change after the call. Fake programs in memory may return all of it in the result all the same.
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

const IPTABLES = ["iptables", "ip6tables"].flatMap((tool) =>
  ["", "-nft", "-legacy"].flatMap((variant) =>
    ["", "-save", "-restore"].map((action) => `${tool}${variant}${action}`)
  )
);

/** Names of all programs that kproxy may start for its work, and so with its rights. */
export const OWN_PROGRAMS: readonly string[] = [
  ...IPTABLES,
  "nft",
  "ipvsadm",
  "ipset",
  "ip",
  "conntrack",
  "sysctl",
  "nfacct",
  "choom",
];

const encoder = new TextEncoder();

/** Base time limit: a list of 100,000 rules takes 10 s, and a machine may be ten times as slow. */
const BASE_MS = 120_000;
/** Time for each byte of input: all rules of 44,000 Services are tens of megabytes, and take seconds; a hundredfold. */
const MS_PER_BYTE = 30_000 / 1_000_000;
/** Time for each listed entry: nft takes 0.09 ms for an element, on an idle machine. */
const MS_PER_ENTRY = 1;

/** Time limit of a program that reads `inputBytes` from standard input. */
export function limitMs({ timeoutMs, entries = 0 }: ExecOptions, inputBytes: number): number {
  return timeoutMs ?? BASE_MS + Math.ceil(inputBytes * MS_PER_BYTE) + entries * MS_PER_ENTRY;
}

/** Time limit of programs that read, or change, a handful of things, however large the node. */
export const QUICK_LIMIT_MS = 10_000;

/** How long a program may take to end after SIGTERM, before it is killed. */
const KILL_GRACE_MS = 1_000;
/** How long to wait for a killed program: one that hangs in the kernel does not even end then. */
const ABANDON_MS = 1_000;
/** How long to wait for output that a killed program may have left in its pipes. */
const DRAIN_MS = 100;
/** Silence of the pipes of an ended program after which they are left to the process that still holds them. */
const HELD_MS = 2_000;
/** All rules of 44,000 Services are tens of megabytes. */
const MAX_STDOUT_BYTES = 128 * 2 ** 20;
/** More bytes for each entry of a list, with its comment, counters and the like. */
const BYTES_PER_ENTRY = 256;
/** Errors about 100,000 lines. */
const MAX_STDERR_BYTES = 16 * 2 ** 20;

/**
 * One run of a program. Reading its output begins before its input is written: a full pipe would stop the program, and with it its
 * writer.
 */
class ProgramRun {
  readonly #argv: readonly string[];
  readonly #options: ExecOptions;
  readonly #child: Deno.ChildProcess;
  readonly #startMs = performance.now();
  /** Aborted: nothing more is read or written, even if another process holds the other ends of its pipes. */
  readonly #cut = new AbortController();
  /** Resolved when the program has ended: no process is left that should read the rest of the input. */
  readonly #over = Promise.withResolvers<void>();
  #limit: ReturnType<typeof setTimeout> | undefined;
  /** The time limit, once the program has exceeded it. */
  #exceededMs: number | null = null;
  #inputBytes = 0;
  /** True: this run waits for nothing more, and may not have read all. */
  #isAbandoned = false;
  /** The excess of its output, in words; null as long as there is none. */
  #excess: string | null = null;
  #readBytes = 0;
  #isRunning = true;
  #isEnding = false;
  #timers: ReturnType<typeof setTimeout>[] = [];

  /** @throws {ExecError} if it could not be started */
  constructor(argv: readonly string[], options: ExecOptions) {
    this.#argv = argv;
    this.#options = options;
    this.#child = spawn(argv, options);
  }

  /** @throws as {@linkcode Exec.run} */
  async finish(): Promise<ExecResult> {
    const { stdin, signal } = this.#options;
    const end = (): void => this.#end();
    signal?.addEventListener("abort", end);
    this.#limitFor(0);
    try {
      const reading = this.#readResult();
      reading.then(() => this.#ended(), () => this.#ended());
      // A write that waits for room in the pipe cannot be cancelled: the last process at the other end closes the pipe.
      if (stdin !== undefined) await Promise.race([this.#feed(stdin), this.#over.promise]);
      const result = await reading;
      if (this.#excess !== null) {
        throw new ExecError(this.#argv, KILLED_CODE, this.#excess);
      }
      // A program that ended well just before it was aborted has done its work, unless some of its output was not read.
      if (result.code !== 0 || this.#isAbandoned) {
        signal?.throwIfAborted();
        if (this.#exceededMs !== null) {
          throw new ExecError(this.#argv, result.code, result.stderr, { timedOutMs: this.#exceededMs });
        }
      }
      const wasKilled = !this.#isAbandoned && (await this.#child.status).signal !== null;
      if (wasKilled) throw new ExecError(this.#argv, result.code, result.stderr);
      return result;
    } finally {
      clearTimeout(this.#limit);
      signal?.removeEventListener("abort", end);
    }
  }

  /** Extends the time limit by the time to read `bytes` more of input. */
  #limitFor(bytes: number): void {
    this.#inputBytes += bytes;
    clearTimeout(this.#limit);
    if (this.#exceededMs !== null) return;
    const ms = limitMs(this.#options, this.#inputBytes);
    this.#limit = setTimeout(() => {
      this.#exceededMs = ms;
      this.#end();
    }, ms - (performance.now() - this.#startMs));
  }

  /** Writes the input as fast as it is read. A program that ends without reading it closes the pipe; its status says what happened. */
  async #feed(input: Input): Promise<void> {
    const writer = this.#child.stdin.getWriter();
    try {
      for (const text of typeof input === "string" ? [input] : input()) {
        // The input is not for other processes, whatever room they make in the pipe.
        if (!this.#isRunning) break;
        const piece = encoder.encode(text);
        this.#limitFor(piece.byteLength);
        await writer.write(piece);
      }
      await writer.close();
    } catch (error) {
      if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
    }
  }

  /** Ends the program: SIGTERM first, SIGKILL if it does not listen, and abandoned if even that does not help. */
  #end(): void {
    if (this.#isEnding || !this.#isRunning) return;
    this.#isEnding = true;
    this.#kill("SIGTERM");
    this.#after(KILL_GRACE_MS, () => {
      this.#kill("SIGKILL");
      this.#after(ABANDON_MS, () => this.#abandon());
    });
    // Processes that it has started may live on, and hold its pipes.
    void this.#child.status.then(() => this.#after(DRAIN_MS, () => this.#abandon()));
  }

  async #readResult(): Promise<ExecResult> {
    const { onStdout: onPiece, entries = 0 } = this.#options;
    const maxBytes = MAX_STDOUT_BYTES + entries * BYTES_PER_ENTRY;
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

  /** Counts the bytes of a stream, and ends the program once it has printed too many. */
  #counter(what: string, maxBytes: number): (bytes: number) => void {
    let total = 0;
    return (bytes) => {
      this.#readBytes += bytes;
      total += bytes;
      if (total <= maxBytes || this.#excess !== null) return;
      this.#excess = `It printed more than ${maxBytes / 2 ** 20} MiB of ${what}`;
      this.#end();
    };
  }

  /**
   * The program has ended, but a process that it started may hold its pipes for ever: they are left once they
   * are silent. What it printed itself is read first, however long that takes.
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

  #ended(): void {
    this.#isRunning = false;
    this.#over.resolve();
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #kill(signal: Deno.Signal): void {
    try {
      this.#child.kill(signal);
    } catch (error) {
      // It has ended in the meantime, as its status shows.
      if (!(error instanceof TypeError || error instanceof Deno.errors.NotFound)) throw error;
    }
  }

  #after(ms: number, then: () => void): void {
    if (this.#isRunning) this.#timers.push(setTimeout(then, ms));
  }
}

/** 128 + SIGKILL. */
const KILLED_CODE = 137;

/** @throws {ExecError} if it could not be started */
function spawn(argv: readonly string[], { stdin, env }: ExecOptions): Deno.ChildProcess {
  const [program, ...args] = argv;
  if (program === undefined) throw new TypeError("Cannot run an empty command");
  try {
    return new Deno.Command(program, {
      args,
      stdin: stdin === undefined ? "null" : "piped",
      stdout: "piped",
      stderr: "piped",
      ...(env === undefined ? {} : { env: { ...env } }),
    }).spawn();
  } catch (error) {
    // A TypeError is about the arguments, which are our own.
    if (!(error instanceof Error) || error instanceof TypeError) throw error;
    throw new ExecError(argv, isAbsent(error) ? -1 : NOT_STARTED_CODE, error.message, { cause: error });
  }
}

function isAbsent(error: Error): boolean {
  const { NotFound, NotCapable, PermissionDenied } = Deno.errors;
  return error instanceof NotFound || error instanceof NotCapable || error instanceof PermissionDenied;
}

/** The {@linkcode Exec} of this machine: programs that are found on its PATH, under the process's `--allow-run` list. */
export const systemExec: Exec = {
  async run(argv, options = {}) {
    options.signal?.throwIfAborted();
    return await new ProgramRun(argv, options).finish();
  },
};

/** Most programs print nothing, or a line. */
const FIRST_BYTES = 4 * 1024;
const MOST_BYTES = 1024 * 1024;
/** Buffer where nothing is kept: the size of a pipe. */
const PIECE_BYTES = 64 * 1024;

/** Options of reading a stream. */
export interface OutputReading {
  /** Ends the reading early, with what has come: another process may hold the other end for ever. */
  readonly until?: AbortSignal;
  /** Bytes that are kept; the rest is dropped, because an endless output must not fill the memory. */
  readonly maxBytes: number;
  /** Takes what is kept as it comes, instead of the text at the end; the bytes change after the call. */
  readonly onPiece?: ((bytes: Uint8Array) => void) | undefined;
  /** Called with how many bytes have come, each time that some do. */
  readonly onBytes?: (bytes: number) => void;
}

/**
 * Reads a stream of UTF-8 to its end. The buffer is ours and is used again: with those that Deno 2.9 makes for
 * `ChildProcess.output()` every program would leave 100 kB of memory behind.
 */
export async function readOutput(
  stream: ReadableStream<Uint8Array>,
  { until, maxBytes, onBytes, onPiece }: OutputReading,
): Promise<string> {
  const reader = stream.getReader({ mode: "byob" });
  until?.addEventListener("abort", () => void reader.cancel());
  const decoder = new TextDecoder();
  const pieces: string[] = [];
  const keep = onPiece ?? ((bytes) => pieces.push(decoder.decode(bytes, { stream: true })));
  const mostBytes = onPiece === undefined ? MOST_BYTES : PIECE_BYTES;
  let buffer = new ArrayBuffer(FIRST_BYTES);
  let left = maxBytes;
  for (;;) {
    const { value, done } = await reader.read(new Uint8Array(buffer));
    if (value === undefined || done) break;
    if (left > 0) keep(value.subarray(0, left));
    left -= Math.min(left, value.byteLength);
    onBytes?.(value.byteLength);
    const { byteLength } = value.buffer;
    // Filled: there is much to come.
    const grows = value.byteLength === byteLength && byteLength < mostBytes;
    buffer = grows ? new ArrayBuffer(4 * byteLength) : value.buffer;
  }
  pieces.push(decoder.decode());
  return pieces.join("");
}
