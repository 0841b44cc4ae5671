/**
 * Drawing on a terminal: a line that says what is being done, and a screen that shows one text at a time. If they
 * cannot be drawn, the work goes on.
 *
 * @module
 */
import type { Terminal } from "../io.ts";
import { Spinner } from "@std/cli/unstable-spinner";
import { cutToWidth } from "../../text/columns.ts";

/** A terminal that takes drawings until it fails for the first time, as when its window is closed. */
export class DrawnOutput {
  readonly #terminal: Terminal;
  #isGone = false;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** Itself in the shape of one of the program's streams, of which a spinner uses `writeSync` and `writable.locked`. */
  asStream(): typeof Deno.stderr {
    const stream = { writable: { locked: false }, writeSync: (bytes: Uint8Array) => this.#draw(bytes) };
    return stream as unknown as typeof Deno.stderr;
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

/** Work that is over sooner shows nothing: a line that only flashes cannot be read. */
const SHOWN_AFTER_MS = 200;
const FRAME_MS = 120;
/** ASCII: the environment, which would name the terminal's characters, is closed to kproxy. */
const FRAMES: readonly string[] = ["|", "/", "-", "\\"];
/** The frame and the blank behind it, and one column that stays free: a line that wraps could not be taken away. */
const BESIDE_TEXT = 3;

/** A line on a terminal that shows what is being done; where there is no terminal, nothing is drawn. */
export class Activity implements Disposable {
  readonly #terminal: Terminal | null;
  readonly #spinner: Spinner | null;
  #text = "";
  #sinceMs = 0;
  #isDrawn = false;
  #delay: ReturnType<typeof setTimeout> | undefined;
  #clock: ReturnType<typeof setInterval> | undefined;

  constructor(terminal: Terminal | null) {
    this.#terminal = terminal;
    this.#spinner = terminal === null ? null : new Spinner({
      spinner: [...FRAMES],
      interval: FRAME_MS,
      output: new DrawnOutput(terminal).asStream(),
    });
  }

  /** Shows what is being done now, until the next call; `""` shows nothing. */
  say(text: string): void {
    if (this.#spinner === null) return;
    if (text === "") return this[Symbol.dispose]();
    if (this.#text === "") {
      this.#sinceMs = Date.now();
      this.#delay = setTimeout(() => this.#draw(), SHOWN_AFTER_MS);
      this.#clock = setInterval(() => this.#update(), 1_000);
    }
    this.#text = text;
    this.#update();
  }

  /** Lets `write` put lines on the terminal: the line makes room and comes back below them. */
  aside(write: () => void): void {
    this.#spinner?.stop();
    try {
      write();
    } finally {
      if (this.#isDrawn) this.#draw();
    }
  }

  /** Takes the line away. */
  [Symbol.dispose](): void {
    clearTimeout(this.#delay);
    clearInterval(this.#clock);
    this.#text = "";
    this.#isDrawn = false;
    this.#spinner?.stop();
  }

  #draw(): void {
    this.#isDrawn = true;
    this.#spinner?.start();
  }

  #update(): void {
    if (this.#spinner === null || this.#terminal === null) return;
    const seconds = Math.floor((Date.now() - this.#sinceMs) / 1_000);
    const text = seconds === 0 ? this.#text : `${this.#text} (${seconds} s)`;
    this.#spinner.message = cutToWidth(text, Math.max(0, this.#terminal.columns() - BESIDE_TEXT));
  }
}

const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
const HOME = "\x1b[H";
const END_OF_LINE = "\x1b[K\r\n";
const END_OF_SCREEN = "\x1b[J";
const USUAL_ROWS = 24;

/** Draws on the terminal's alternate screen, so that the former contents are back in the end. */
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
