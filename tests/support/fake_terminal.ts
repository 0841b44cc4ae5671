/**
 * A terminal for tests: keeps all output, and shows the screen as a user sees it.
 *
 * @module
 */
import type { Terminal } from "../../lib/cli/io.ts";

/** Bytes per write, as on a slow line: fewer than any drawing has. */
const AT_ONCE = 3;
// deno-lint-ignore no-control-regex -- a terminal's controls are these.
const COLOR = /\x1b\[[\d;]*m/g;

/** Supports the two controls of a drawn line: carriage return, and erase to the end. */
export class FakeTerminal implements Terminal {
  /** Error of every write while it is set. */
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

  /** All output so far. */
  get written(): string {
    return new TextDecoder().decode(new Uint8Array(this.#bytes));
  }

  /** Lines on the screen, without colours. */
  get screen(): string[] {
    return this.written.replace(COLOR, "").split("\n").map((line) => line.split("\r\x1b[K").at(-1) ?? "");
  }
}
