/**
 * The program's log lines, as `logging` of the configuration wants them.
 *
 * @module
 */
import { wallClockMs } from "../kernel/clock.ts";
import type { LoggingConfig } from "../config/types.ts";
import { createLogger, type ProgramLogger, type Verbosity } from "../observe/log.ts";
import type { LogStreams } from "../observe/line_writer.ts";
import type { RecentProblems } from "../observe/recent_problems.ts";

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
