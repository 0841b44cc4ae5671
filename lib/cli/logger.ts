/**
 * The program's log lines, as `logging` of the configuration wants them.
 *
 * @module
 */
import type { LoggingConfig } from "../config/types.ts";
import { createLogger, type Logger } from "../observe/log.ts";
import type { Io } from "./io.ts";

/** A logger that writes to standard error. */
export function openLogger(logging: LoggingConfig, io: Io): Logger {
  return createLogger({
    format: logging.format === "json" ? "json" : "text",
    verbosity: logging.verbosity,
    vmodule: logging.vmodule,
    write: (line) => io.err(line),
    nowMs: () => performance.timeOrigin + performance.now(),
    pid: Deno.pid,
  });
}
