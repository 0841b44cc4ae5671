/**
 * Programs whose output is read while they print it.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/** Takes what a program prints while it does. */
export interface OutputReader {
  /** What came before counts no more: a program begins to print. */
  begin(): void;
  /** Takes the next bytes, which change after the call. */
  write(bytes: Uint8Array): void;
}

const encoder = new TextEncoder();

/** As `Exec.run`, but what it prints goes into `reader`. */
export async function runInto(
  exec: Exec,
  reader: OutputReader,
  argv: readonly string[],
  options: ExecOptions,
): Promise<ExecResult> {
  reader.begin();
  const result = await exec.run(argv, { ...options, onStdout: (bytes) => reader.write(bytes) });
  // Of a program in memory.
  if (result.stdout !== "") reader.write(encoder.encode(result.stdout));
  return result;
}
