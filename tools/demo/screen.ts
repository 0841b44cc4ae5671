/**
 * What the demo shows: headings and rows; on a terminal also colours and a line at the bottom that says what is being done.
 *
 * @module
 */
import { Activity } from "../../lib/cli/terminal/drawing.ts";
import { padToWidth } from "../../lib/cli/terminal/columns.ts";
import { errorTerminal, isUnicodeLocale } from "../terminal.ts";

/** How text is set off; plain where there are no colours. */
export type Tone = "strong" | "faint" | "good" | "bad" | "bar";

const CODES: Readonly<Record<Tone, string>> = { strong: "1", faint: "2", good: "32", bad: "1;31", bar: "36" };
const LABEL_WIDTH = 12;

/** Where and how to write. */
export interface ScreenOptions {
  readonly colors: boolean;
  /** True if the terminal shows more than ASCII. */
  readonly unicode: boolean;
  /** Shows what is being done. */
  readonly activity: Activity;
  readonly write: (text: string) => void;
}

/** Standard output as it is: a terminal or a pipe, with `NO_COLOR`, `TERM` and the locale honoured. */
export function standardScreen(): Screen {
  const terminal = Deno.stdout.isTerminal() && Deno.env.get("TERM") !== "dumb";
  return new Screen({
    activity: new Activity(errorTerminal()),
    colors: terminal && !Deno.noColor,
    unicode: terminal && isUnicodeLocale(),
    write: (text) => {
      let bytes: Uint8Array = new TextEncoder().encode(text);
      // A write to a pipe may take only a part.
      while (bytes.length > 0) bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
    },
  });
}

/** Writes the demo's lines in order. */
export class Screen {
  readonly #options: ScreenOptions;
  readonly #startedMs = performance.now();
  #broken: unknown;
  #closed = false;

  constructor(options: ScreenOptions) {
    this.#options = options;
  }

  /** Seconds since the screen was made. */
  get seconds(): number {
    return (performance.now() - this.#startedMs) / 1000;
  }

  /** Text in a tone, if there are colours. */
  tone(tone: Tone, text: string): string {
    return this.#options.colors ? `\x1b[${CODES[tone]}m${text}\x1b[0m` : text;
  }

  /** One line as it is. */
  line(text = ""): void {
    this.#options.activity.aside(() => this.#write(`${text}\n`));
    this.#check();
  }

  /** An empty line and a heading. */
  heading(text: string): void {
    this.line();
    this.line(this.tone("strong", text));
  }

  /** A label, and text from the fifteenth column on. */
  row(label: string, text: string): void {
    this.line(`  ${this.tone("faint", padToWidth(label, LABEL_WIDTH))}${text}`);
  }

  /** A bar of `count` parts. */
  bar(count: number): string {
    return this.tone("bar", (this.#options.unicode ? "█" : "#").repeat(count));
  }

  /** What is being done now, shown at the bottom of a terminal until it changes; empty shows nothing. */
  progress(text: string): void {
    if (!this.#closed) this.#options.activity.say(text);
  }

  /** Ends what shows at the bottom. From now on it is no failure that nobody reads. */
  close(): void {
    this.#closed = true;
    this.#options.activity[Symbol.dispose]();
  }

  #write(text: string): void {
    if (this.#broken !== undefined) return;
    try {
      this.#options.write(text);
    } catch (error) {
      this.#broken = error;
    }
  }

  /** Nobody reads any more: a reason to stop, but not to leave things behind. */
  #check(): void {
    if (this.#broken === undefined || this.#closed) return;
    throw new Error("Nobody reads its output any more", { cause: this.#broken });
  }
}
