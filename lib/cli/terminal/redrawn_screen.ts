/**
 * A terminal that shows one text at a time, each in the place of the one before.
 *
 * @module
 */
import type { Terminal } from "../io.ts";
import { cutToWidth } from "./columns.ts";
import { DrawnOutput } from "./drawn_output.ts";

const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
const HOME = "\x1b[H";
const END_OF_LINE = "\x1b[K\r\n";
const END_OF_SCREEN = "\x1b[J";
const USUAL_ROWS = 24;

/** Draws on the terminal's second screen, so that what was on the first one is there again in the end. */
export class RedrawnScreen implements Disposable {
  readonly #terminal: Terminal;
  readonly #output: Pick<typeof Deno.stderr, "writeSync">;
  readonly #encoder = new TextEncoder();

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#output = new DrawnOutput(terminal).asStream();
    this.#write(ENTER);
  }

  /** Shows these lines and nothing else, as far as there is room. */
  show(lines: readonly string[]): void {
    // The cursor stands below the last line.
    const room = Math.max(1, (this.#terminal.rows?.() ?? USUAL_ROWS) - 1);
    const hidden = lines.length - room;
    const shown = hidden <= 0
      ? lines
      : [...lines.slice(0, room - 1), `... ${hidden + 1} more lines: use a higher terminal`];
    // In the last column, the erasing of the rest would take the last character along.
    const columns = this.#terminal.columns() - 1;
    // Each line is written over, not erased first: that would flicker.
    const drawn = shown.map((line) => cutToWidth(line, columns) + END_OF_LINE).join("");
    this.#write(HOME + drawn + END_OF_SCREEN);
  }

  [Symbol.dispose](): void {
    this.#write(LEAVE);
  }

  #write(text: string): void {
    this.#output.writeSync(this.#encoder.encode(text));
  }
}
