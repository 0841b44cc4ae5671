/**
 * Structured log lines in klog's two forms, text and JSON.
 *
 * @module
 */

/** Values of a log line, in the order given. Undefined ones are left out. */
export type LogValues = Readonly<Record<string, unknown>>;

/** Writes log lines. */
export interface Logger {
  /** True if lines of this verbosity are written; guard costly values with it. */
  enabled(verbosity: number): boolean;
  /** An information of the given verbosity (0 is always written). */
  info(message: string, values?: LogValues, verbosity?: number): void;
  warn(message: string, values?: LogValues): void;
  /** `error` goes under the key `err`. */
  error(message: string, error: unknown, values?: LogValues): void;
}
