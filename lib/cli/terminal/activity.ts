/**
 * A line at the bottom of a terminal that says what is being done, and for how long, while it lasts.
 *
 * @module
 */
import { Spinner } from "@std/cli/unstable-spinner";
import type { Terminal } from "../io.ts";
import { cutToWidth } from "./columns.ts";
import { DrawnOutput } from "./drawn_output.ts";

/** Work that is over sooner shows nothing: a line that only flashes tells nobody anything. */
const SHOWN_AFTER_MS = 200;
const FRAME_MS = 120;
const FRAMES: readonly string[] = ["|", "/", "-", "\\"];
const UNICODE_FRAMES: readonly string[] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/** The frame and the blank behind it, and one column that stays free: a line that wraps could not be taken away. */
const BESIDE_TEXT = 3;

/** What is being done, shown on a terminal; where there is none, nothing is drawn. */
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
      spinner: [...terminal.hasUnicode ? UNICODE_FRAMES : FRAMES],
      interval: FRAME_MS,
      output: new DrawnOutput(terminal).asStream(),
    });
  }

  /** Says what is being done now, until the next call; `""` shows nothing. */
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
