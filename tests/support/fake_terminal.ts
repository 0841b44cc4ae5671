/**
 * A terminal for tests: it keeps what is drawn and knows what a person sees of it.
 *
 * @module
 */
import type { Terminal } from "../../lib/cli/io.ts";

/** Bytes it takes at a time, as a slow line does: fewer than any drawing has. */
const AT_ONCE = 3;
// deno-lint-ignore no-control-regex -- a terminal's controls are these.
const COLOR = /\x1b\[[\d;]*m/g;

/** Understands the two controls that a drawn line needs: back to the first column, and erase to the end. */
export class FakeTerminal implements Terminal {
  /** Thrown at every write while it is set. */
  failure: Error | undefined;
  #columns: number;
  #bytes: number[] = [];

  constructor({ columns = 80 }: { columns?: number } = {}) {
    this.#columns = columns;
  }

  columns(): number {
    return this.#columns;
  }

  writeSync(bytes: Uint8Array): number {
    if (this.failure !== undefined) throw this.failure;
    const part = bytes.subarray(0, AT_ONCE);
    this.#bytes.push(...part);
    return part.length;
  }

  /** Everything that was written. */
  get written(): string {
    return new TextDecoder().decode(new Uint8Array(this.#bytes));
  }

  /** The lines that a person sees, without colours. */
  get screen(): string[] {
    return this.written.replace(COLOR, "").split("\n").map((line) => line.split("\r\x1b[K").at(-1) ?? "");
  }
}
