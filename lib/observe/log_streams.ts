/**
 * Where log lines go.
 *
 * @module
 */
import type { LineWriter } from "./line_writer.ts";

/** The two streams of a log. Neither of them fails or waits. */
export interface LogStreams {
  readonly out: LogStream;
  readonly err: LogStream;
  /** Resolves when every line is with the system, or when that takes too long. */
  flush(): Promise<void>;
}

/** One stream of a log. */
export type LogStream = Pick<LineWriter, "write" | "dropped" | "onResumed">;
