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

/** The streams of this program. */
export const systemIo: Io = {
  async out(text) {
    for (let bytes = encoder.encode(text); bytes.length > 0;) {
      bytes = bytes.subarray(await Deno.stdout.write(bytes));
    }
  },
  err(text) {
    for (let bytes = encoder.encode(text); bytes.length > 0;) {
      bytes = bytes.subarray(Deno.stderr.writeSync(bytes));
    }
  },
};
