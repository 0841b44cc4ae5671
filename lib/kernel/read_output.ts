/**
 * What programs print, as text.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/** Most programs print nothing, or a line. */
const FIRST_BYTES = 4 * 1024;
const MOST_BYTES = 1024 * 1024;
/** Where nothing is kept: what a pipe holds. */
const PIECE_BYTES = 64 * 1024;

/** How a stream is read. */
export interface OutputReading {
  /** Ends it early, with what has come: another process may hold the other end for ever. */
  readonly until?: AbortSignal;
  /** So much is kept; of the rest nothing, because an endless output must not fill the memory. */
  readonly maxBytes: number;
  /** Takes what is kept as it comes, instead of the text at the end; the bytes change after the call. */
  readonly onPiece?: ((bytes: Uint8Array) => void) | undefined;
  /** Told how many bytes have come, each time that some do. */
  readonly onBytes?: (bytes: number) => void;
}

/**
 * Reads a stream of UTF-8 to its end. The buffer is ours and is used again: with those that Deno 2.9 makes for
 * `ChildProcess.output()` every program would leave 100 kB of memory behind.
 */
export async function readOutput(
  stream: ReadableStream<Uint8Array>,
  reading: OutputReading,
): Promise<string> {
  const { until } = reading;
  const reader = stream.getReader({ mode: "byob" });
  const cancel = (): void => void reader.cancel();
  until?.addEventListener("abort", cancel);
  try {
    return await readText(reader, reading);
  } finally {
    until?.removeEventListener("abort", cancel);
  }
}

async function readText(
  reader: ReadableStreamBYOBReader,
  { maxBytes, onBytes, onPiece }: OutputReading,
): Promise<string> {
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
