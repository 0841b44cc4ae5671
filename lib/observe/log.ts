/**
 * Structured log lines in klog's two forms, text and JSON, and the last warnings and errors for the status.
 *
 * @module
 */
import { cut, escaped, escapedJson } from "../text/quote.ts";
import { wallClockMs } from "../kernel/clock.ts";
import type { LoggingConfig } from "../config/types.ts";
import type { LogStreams } from "./line_writer.ts";

/** Values of a log line, in the order given. Undefined ones are left out. */
export type LogValues = Readonly<Record<string, unknown>>;

/** Writes log lines. */
export interface Logger {
  /** True if lines of this verbosity are written; guard costly values with it. */
  enabled(verbosity: number): boolean;
  /** An information of the given verbosity (0 is always written). */
  info(message: string, values?: LogValues, verbosity?: number): void;
  /** A warning: an operator should look, nothing has ended. */
  warn(message: string, values?: LogValues): void;
  /** `error` goes under the key `err`. */
  error(message: string, error: unknown, values?: LogValues): void;
}

/** A logger of the program itself. */
export interface ProgramLogger extends Logger {
  /** A sentence without values, which a text line holds as it is, without quotes (klog's `Infof`). */
  text(sentence: string, verbosity: number): void;
}

/** Raises the verbosity for source files whose name, without `.ts`, matches the pattern (`*` and `?`). */
export interface VmoduleEntry {
  readonly filePattern: string;
  readonly verbosity: number;
}

/** A verbosity that may change while the program runs. */
export interface Verbosity {
  level: number;
}

/** Dependencies of {@linkcode createLogger}. */
export interface LoggerOptions {
  readonly format: "text" | "json";
  readonly verbosity: number | Verbosity;
  readonly vmodule?: readonly VmoduleEntry[];
  /** Takes one complete line, newline included. */
  readonly write: (line: string) => void;
  /** Milliseconds since the epoch, with fractions. */
  readonly nowMs: () => number;
  readonly pid: number;
  /** Called for every warning and error. */
  readonly onProblem?: (problem: LoggedProblem) => void;
}

/** A warning or an error, as it was logged. */
export interface LoggedProblem {
  readonly severity: "W" | "E";
  readonly message: string;
  readonly values: LogValues;
}

/** Message of lines that record who changed the node, and how: each repair, cleanup and switch of the mode. */
export const AUDIT = "Audit";

type Severity = "I" | "W" | "E";

interface Line {
  readonly severity: Severity;
  readonly message: string;
  readonly verbosity: number;
  readonly values: LogValues;
  readonly plain?: boolean;
}

/** Makes a logger that writes klog's text or JSON lines. */
export function createLogger(options: LoggerOptions): ProgramLogger {
  const vmodule = (options.vmodule ?? []).map((entry) => ({
    pattern: globPattern(entry.filePattern),
    verbosity: entry.verbosity,
  }));
  const { verbosity } = options;
  const overall: Readonly<Verbosity> = typeof verbosity === "number" ? { level: verbosity } : verbosity;
  const highestOfFiles = Math.max(...vmodule.map((entry) => entry.verbosity));
  const isWritten = (wanted: number): boolean => wanted <= overall.level || wanted <= highestOfFiles;

  function threshold(caller: string): number {
    const file = caller.slice(0, caller.lastIndexOf(":")).replace(/\.ts$/, "");
    return vmodule.find((entry) => entry.pattern.test(file))?.verbosity ?? overall.level;
  }

  function emit(line: Line, method: Method): void {
    if (!isWritten(line.verbosity)) return;
    const { severity, message, values } = line;
    if (severity !== "I") options.onProblem?.({ severity, message, values });
    const caller = callerOf(method);
    if (line.verbosity > 0 && line.verbosity > threshold(caller)) return;
    const render = options.format === "json" ? renderJson : renderText;
    options.write(render(line, caller, options.nowMs(), options.pid) + "\n");
  }

  const logger: ProgramLogger = {
    enabled: isWritten,
    info: (message, values = {}, verbosity = 0) =>
      emit({ severity: "I", message, verbosity, values }, logger.info),
    warn: (message, values = {}) => emit({ severity: "W", message, verbosity: 0, values }, logger.warn),
    error: (message, error, values = {}) =>
      emit({ severity: "E", message, verbosity: 0, values: { err: error, ...values } }, logger.error),
    text: (message, verbosity) =>
      emit({ severity: "I", message, verbosity, values: {}, plain: true }, logger.text),
  };
  return logger;
}

/** A logger that drops everything. */
export const silentLogger: Logger = createLogger({
  format: "text",
  verbosity: -1,
  write: () => {},
  nowMs: () => 0,
  pid: 0,
});

/** Method of the logger that was called. */
type Method = ProgramLogger["info" | "warn" | "error" | "text"];

/** `file.ts:12` of the code that called the logger. */
function callerOf(method: Method): string {
  const frame = callerFrame(method);
  const place = /([\w.-]+\.ts:\d+):\d+\)?$/.exec(frame)?.[1];
  return place ?? bundledPlace(frame) ?? "unknown:0";
}

/** The last line of a stack that has one frame: to put each further one into words would take as long as all else of a log line. */
function callerFrame(method: Method): string {
  const { stackTraceLimit } = Error;
  const holder = { stack: "" };
  Error.stackTraceLimit = 1;
  try {
    Error.captureStackTrace(holder, method);
    return holder.stack.slice(holder.stack.lastIndexOf("\n") + 1);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Global that holds the source places of a bundle's code: see `tools/bundle.ts`. */
const PLACES = Symbol.for("kproxy.places");

function bundledPlace(frame: string): string | undefined {
  const places: unknown = Reflect.get(globalThis, PLACES);
  const at = /([\w.-]+\.js:\d+:\d+)\)?$/.exec(frame)?.[1];
  if (at === undefined || typeof places !== "object" || places === null) return undefined;
  const place: unknown = Reflect.get(places, at);
  return typeof place === "string" ? place : undefined;
}

function globPattern(glob: string): RegExp {
  const escaped = glob.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${escaped}$`);
}

function pad(value: number, width: number): string {
  return String(value).padStart(width, "0");
}

function renderText(line: Line, caller: string, nowMs: number, pid: number): string {
  const date = new Date(nowMs);
  const micros = Math.floor((nowMs - Math.floor(nowMs / 1000) * 1000) * 1000);
  const day = pad(date.getMonth() + 1, 2) + pad(date.getDate(), 2);
  const time = `${pad(date.getHours(), 2)}:${pad(date.getMinutes(), 2)}:${pad(date.getSeconds(), 2)}`;
  const header = `${line.severity}${day} ${time}.${pad(micros, 6)} ${String(pid).padStart(7)} ${caller}]`;
  const values = valuesText(line.values, line.verbosity);
  const message = line.plain === true ? escaped(line.message) : jsonOf(line.message, line.verbosity);
  return `${header} ${message}${values === "" ? "" : " "}${values}`;
}

function renderJson(line: Line, caller: string, nowMs: number): string {
  const fields: Record<string, unknown> = { ts: Math.round(nowMs * 1000) / 1000, caller, msg: line.message };
  if (line.severity === "I") fields["v"] = line.verbosity;
  return jsonOf({ ...fields, ...line.values }, line.verbosity);
}

/** The values as a text line shows them, ` a=1 b="c"` without the first blank. */
export function valuesText(values: LogValues, verbosity = 0): string {
  return Object.entries(values).filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key}=${jsonOf(value, verbosity)}`)
    .join(" ");
}

/**
 * Length of one text in a line: names, paths and sentences are shorter. What a tenant wrote is cut before, as `sentence`
 * and `quote` do.
 */
const MAX_TEXT_LENGTH = 1_000;
/** Length of an error, which may hold output of programs: a line that is too long for the log would be lost as a whole. */
const MAX_ERROR_LENGTH = 4_000;
/** The verbosity at which everything written to the kernel is logged in full. */
const WHOLE_VERBOSITY = 9;

/** JSON on one line, without anything that a terminal would obey. */
function jsonOf(value: unknown, verbosity: number): string {
  const shown = (_key: string, part: unknown): unknown => {
    if (part instanceof Error) return errorText(part);
    if (part instanceof Set) return [...part];
    if (part instanceof Map) return Object.fromEntries(part);
    if (typeof part !== "string" || verbosity >= WHOLE_VERBOSITY) return part;
    return cut(part, MAX_TEXT_LENGTH);
  };
  return escapedJson(JSON.stringify(value, shown) ?? '""');
}

/** The error's message and those of its causes, as far as a line of the log holds them. */
export function errorText(error: unknown): string {
  return cut(wholeErrorText(error), MAX_ERROR_LENGTH);
}

function wholeErrorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? "" : wholeErrorText(error.cause);
  return cause === "" || error.message.includes(cause) ? error.message : `${error.message}: ${cause}`;
}

/** Most problems that are remembered; the one that was met longest ago is forgotten first. */
const REMEMBERED = 1_000;

/** A reporter that logs each problem as a warning once, as long as it remembers it. */
export function partlyUsableReport(log: Logger, remembered: number = REMEMBERED): (problem: string) => void {
  const told = new Set<string>();
  return (problem) => {
    const isKnown = told.delete(problem);
    told.add(problem);
    if (isKnown) return;
    for (const oldest of told) {
      if (told.size <= remembered) break;
      told.delete(oldest);
    }
    log.warn("Object is only partly usable", { problem });
  };
}

/**
 * A logger that writes to standard error, or, if streams are split, information to standard output.
 *
 * @param problems takes the warnings and errors, too
 */
export function openLogger(
  logging: LoggingConfig,
  streams: Pick<LogStreams, "out" | "err">,
  verbosity: Verbosity = { level: logging.verbosity },
  problems?: RecentProblems,
): ProgramLogger {
  const format = logging.format === "json" ? "json" : "text";
  const isInformation = format === "json" ? isJsonInformation : isTextInformation;
  const { out, err } = streams;
  const toError = (line: string): void => err.write(line);
  const split = (line: string): void => (isInformation(line) ? out : err).write(line);
  const log = createLogger({
    format,
    verbosity,
    vmodule: logging.vmodule,
    write: logging.options[format].splitStream ? split : toError,
    nowMs: wallClockMs,
    pid: Deno.pid,
    ...(problems === undefined ? {} : { onProblem: (problem) => problems.add(problem) }),
  });
  err.onResumed = (count) => log.warn("Log lines could not be written and are lost", { count });
  return log;
}

function isTextInformation(line: string): boolean {
  return line.startsWith("I");
}

/** Only information has a verbosity, right after the message; no warning has a value of that name. */
function isJsonInformation(line: string): boolean {
  return /^\{"ts":[^,]*,"caller":"[^"]*","msg":"(?:[^"\\]|\\.)*","v":\d/.test(line);
}

/** A warning or error that is remembered. */
export interface RecentProblem {
  readonly severity: "warning" | "error";
  readonly message: string;
  /** `err="…" family="IPv4"`; cut off if it is long. */
  readonly values: string;
  /** When it was logged first and last, in milliseconds since the epoch. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** How often it was logged in a row. */
  readonly count: number;
}

const CAPACITY = 50;
const MAX_VALUES_LENGTH = 600;

/** Remembers the last warnings and errors. The same one again, with nothing else in between, takes no further place. */
export class RecentProblems {
  readonly #nowMs: () => number;
  #problems: RecentProblem[] = [];
  #total = 0;

  /** @param nowMs milliseconds since the epoch */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Number of warnings and errors since the process began. */
  get total(): number {
    return this.#total;
  }

  /** The remembered problems, the oldest first. */
  get problems(): readonly RecentProblem[] {
    return this.#problems;
  }

  add({ severity, message, values: logged }: LoggedProblem): void {
    this.#total++;
    const nowMs = this.#nowMs();
    const values = cut(valuesText(logged), MAX_VALUES_LENGTH);
    const kind = severity === "W" ? "warning" : "error";
    const last = this.#problems.at(-1);
    const isSame = last?.message === message && last.severity === kind && last.values === values;
    const kept = isSame ? this.#problems.slice(0, -1) : this.#problems.slice(1 - CAPACITY);
    const before = isSame ? last : { firstMs: nowMs, count: 0 };
    kept.push({
      severity: kind,
      message,
      values,
      firstMs: before.firstMs,
      lastMs: nowMs,
      count: before.count + 1,
    });
    this.#problems = kept;
  }
}
