/**
 * The error classes that callers are expected to catch. Everything else throws a built-in by meaning:
 * `TypeError` for a wrong shape, `RangeError` for a value out of range, `SyntaxError` for text that does not parse.
 *
 * @module
 */
import { cut } from "./text/quote.ts";

/** One problem of a configuration or an object, with the path of the field it is about. */
export interface Problem {
  /** Field path, e.g. `conntrack.maxPerCore` or `nodePortAddresses[1]`; empty for the whole document. */
  readonly path: string;
  /** What is wrong and what is wanted, without the path. */
  readonly message: string;
  /** 1-based line in the file, where known. */
  readonly line?: number;
}

/** All problems of one configuration at once. The command line exits with 2. */
export class ConfigError extends Error {
  /** Every problem found, in the order of the text's lines. */
  readonly problems: readonly Problem[];
  /** File name, or undefined if the configuration came from flags. */
  readonly file: string | undefined;

  /** Makes the error; its message has a line for each problem, with the file's name before it where one is given. */
  constructor(problems: readonly Problem[], file?: string, options?: ErrorOptions) {
    super(problems.map((problem) => formatProblem(problem, file)).join("\n"), options);
    this.name = "ConfigError";
    this.problems = problems;
    this.file = file;
  }
}

/** `file:line: path: message`, leaving out what is not known. */
export function formatProblem(problem: Problem, file?: string): string {
  const place = [file, problem.line].filter((part) => part !== undefined).join(":");
  return [place, problem.path, problem.message].filter((part) => part !== "").join(": ");
}

/** Wrong use of the command line. The command line exits with 2. */
export class UsageError extends Error {
  /** Makes the error from a sentence that says what to write instead. */
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "UsageError";
  }
}

/** Signals by number: how a program ended that was killed, as its status tells (128 + number). */
const SIGNALS: Readonly<Record<number, string>> = {
  1: "SIGHUP",
  2: "SIGINT",
  3: "SIGQUIT",
  4: "SIGILL",
  6: "SIGABRT",
  7: "SIGBUS",
  8: "SIGFPE",
  9: "SIGKILL",
  11: "SIGSEGV",
  13: "SIGPIPE",
  14: "SIGALRM",
  15: "SIGTERM",
  24: "SIGXCPU",
  25: "SIGXFSZ",
  31: "SIGSYS",
};

/** The program is missing, or may not be started. */
const MISSING_CODE = -1;
/** Exit status of a program whose libraries cannot be loaded (ld.so). */
const LOADER_FAILED = 127;
/** The program exists, but the machine could not start it. */
export const NOT_STARTED_CODE = -2;

// Errors of a machine that is short of something, whatever was asked for.
const SHORTAGE_REGEXP =
  /Cannot allocate memory|No buffer space available|Interrupted system call|Out of memory|Resource temporarily unavailable|Too many open files/i;

/** A program that ended with a status other than 0, was killed, or could not be started. */
export class ExecError extends Error {
  /** The program and its arguments. */
  readonly argv: readonly string[];
  /** Exit status; 128 + signal number if it was killed; -1 if it is not there, {@linkcode NOT_STARTED_CODE} if it could not be started. */
  readonly code: number;
  /** Its whole standard error, as it was printed. */
  readonly stderr: string;
  /** How it ended, in words: `failed with status 1`, `was killed by signal SIGKILL`, `timed out after 30 s`. */
  readonly ending: string;
  /** After how many milliseconds it was ended because it had not ended by itself; null if it was not. */
  readonly timedOutMs: number | null;

  /** Makes the error; its message names the program and the first line of its standard error. */
  constructor(
    argv: readonly string[],
    code: number,
    stderr: string,
    options?: ErrorOptions & { readonly timedOutMs?: number },
  ) {
    const timedOutMs = options?.timedOutMs ?? null;
    const ending = howItEnded(code, timedOutMs);
    super(`Command "${argv.join(" ")}" ${ending}${firstLine(stderr)}`, options);
    this.name = "ExecError";
    this.argv = argv;
    this.code = code;
    this.stderr = stderr;
    this.ending = ending;
    this.timedOutMs = timedOutMs;
  }

  /** True if the object named in the command does not exist (chain, rule, set, table), by the tools' errors. */
  isNotFound(): boolean {
    // A missing library is a missing file, too. Then the loader ends the program.
    if (this.code === LOADER_FAILED) return false;
    // The netfilter tools never call setlocale, so matching their text is safe.
    return /No chain\/target\/match by that name|No such file or directory|does a matching rule exist|does not exist/
      .test(this.stderr);
  }

  /** True if the program could not be found or may not be started. */
  isMissing(): boolean {
    return this.code === MISSING_CODE;
  }

  /**
   * True if this says nothing about what the machine can do: the program was killed, hung, could not be started, or the machine
   * was short of memory, descriptors or the like. The next try may end otherwise.
   */
  isInconclusive(): boolean {
    return this.timedOutMs !== null || this.code === NOT_STARTED_CODE || signalOf(this.code) !== null ||
      SHORTAGE_REGEXP.test(this.stderr);
  }
}

function signalOf(code: number): string | null {
  return SIGNALS[code - 128] ?? null;
}

function howItEnded(code: number, timedOutMs: number | null): string {
  if (timedOutMs !== null) return `timed out after ${timedOutMs / 1000} s`;
  const signal = signalOf(code);
  return signal === null ? `failed with status ${code}` : `was killed by signal ${signal}`;
}

/** Characters that are shown of one line of a program: some print whole inputs. */
const MAX_LINE_LENGTH = 2_000;

/** The first line after a colon; nothing if there is none. */
function firstLine(text: string): string {
  const line = text.trimStart().split("\n", 1)[0] ?? "";
  if (line === "") return "";
  return `: ${cut(line, MAX_LINE_LENGTH)}`;
}

/** The node lacks something a feature needs. */
export class UnsupportedError extends Error {
  /** The feature that is not supported, e.g. a mode or a kernel module. */
  readonly feature: string;
  /** What the feature needs. */
  readonly needs: string;
  /** What was found instead. */
  readonly found: string;

  /** `message` says it better than the three parts together would. */
  constructor(
    feature: string,
    needs: string,
    found: string,
    options?: ErrorOptions & { readonly message?: string },
  ) {
    super(options?.message ?? `${feature} is not supported here: needs ${needs}, found ${found}`, options);
    this.name = "UnsupportedError";
    this.feature = feature;
    this.needs = needs;
    this.found = found;
  }
}

/** Phase of a sync in which something failed. */
export type SyncPhase = "read" | "plan" | "apply";

/** A sync that did not reach the desired state. */
export class SyncError extends Error {
  /** The proxy mode, e.g. `nftables`. */
  readonly mode: string;
  /** Phase of the sync in which it failed. */
  readonly phase: SyncPhase;
  /** False if trying again cannot help. */
  readonly retryable: boolean;

  /** Makes the error; its message begins with the mode and the phase. */
  constructor(
    mode: string,
    phase: SyncPhase,
    message: string,
    options?: ErrorOptions & { retryable?: boolean },
  ) {
    super(`${mode} ${phase}: ${message}`, options);
    this.name = "SyncError";
    this.mode = mode;
    this.phase = phase;
    this.retryable = options?.retryable ?? true;
  }
}
