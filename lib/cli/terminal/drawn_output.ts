/**
 * Where lines are drawn that only tell of the work: the work goes on whatever becomes of them.
 *
 * @module
 */
import type { Terminal } from "../io.ts";

/** A terminal that takes drawings until it fails for the first time, as when its window is closed. */
export class DrawnOutput {
  readonly #terminal: Terminal;
  #isGone = false;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** As what draws on one of the program's own streams wants it: of these, it uses `writeSync` and `writable.locked`. */
  asStream(): typeof Deno.stderr {
    const stream = { writable: { locked: false }, writeSync: (bytes: Uint8Array) => this.#draw(bytes) };
    return stream as unknown as typeof Deno.stderr;
  }

  /** As what draws on a stream of the web wants it. */
  writable(): WritableStream<Uint8Array> {
    return new WritableStream({ write: (bytes) => void this.#draw(bytes) });
  }

  #draw(bytes: Uint8Array): number {
    try {
      for (let rest = bytes; rest.length > 0 && !this.#isGone;) {
        const taken = this.#terminal.writeSync(rest);
        if (taken === 0) break;
        rest = rest.subarray(taken);
      }
    } catch (error) {
      // A terminal that takes nothing at the moment misses one drawing of many.
      this.#isGone = !(error instanceof Deno.errors.WouldBlock);
    }
    return bytes.length;
  }
}
