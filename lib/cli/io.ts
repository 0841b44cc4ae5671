/**
 * Where a command writes. The real one is {@linkcode systemIo}; tests collect.
 *
 * @module
 */

/** The two output streams of a command. */
export interface Io {
  /**
   * Writes text to standard output.
   *
   * @throws {Deno.errors.BrokenPipe} if nobody reads any more
   */
  out(text: string): Promise<void>;
  /** Writes text to standard error, before it returns. */
  err(text: string): void;
}

const encoder = new TextEncoder();
const FULL_PIPE_PAUSE_MS = 1;

/** The streams of this program. Text is with the system when a call returns, so that an exit loses nothing. */
export const systemIo: Io = {
  // deno-lint-ignore require-await -- a failure must come as a rejection.
  async out(text) {
    writeAll(Deno.stdout, text);
  },
  err(text) {
    writeAll(Deno.stderr, text);
  },
};

function writeAll(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  for (let bytes = encoder.encode(text); bytes.length > 0;) {
    try {
      bytes = bytes.subarray(stream.writeSync(bytes));
    } catch (error) {
      // Whoever started us may have made the pipe non-blocking.
      if (!(error instanceof Deno.errors.WouldBlock)) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FULL_PIPE_PAUSE_MS);
    }
  }
}
