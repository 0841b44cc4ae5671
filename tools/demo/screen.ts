/**
 * What the demo shows: headings and rows; on a terminal also colours and one line of progress at the bottom.
 *
 * @module
 */

/** How text is set off; plain where there are no colours. */
export type Tone = "strong" | "faint" | "good" | "bad" | "bar";

const CODES: Readonly<Record<Tone, string>> = { strong: "1", faint: "2", good: "32", bad: "1;31", bar: "36" };
const PROGRESS_INTERVAL_MS = 100;
const LABEL_WIDTH = 12;

/** Where and how to write. */
export interface ScreenOptions {
  /** True shows the line of progress. */
  readonly terminal: boolean;
  readonly colors: boolean;
  /** True if the terminal shows more than ASCII. */
  readonly unicode: boolean;
  /** Columns; read again at every line of progress. */
  readonly columns: () => number;
  readonly write: (text: string) => void;
}

/** Standard output as it is: a terminal or a pipe, with `NO_COLOR`, `TERM` and the locale honoured. */
export function standardScreen(): Screen {
  const terminal = Deno.stdout.isTerminal() && Deno.env.get("TERM") !== "dumb";
  const locale = ["LC_ALL", "LC_CTYPE", "LANG"].map((name) => Deno.env.get(name)).find((value) => value) ??
    "";
  return new Screen({
    terminal,
    colors: terminal && !Deno.noColor,
    unicode: terminal && /utf-?8/i.test(locale),
    columns: () => Deno.consoleSize().columns,
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
  #progress = "";
  #timer: ReturnType<typeof setInterval> | undefined;
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
    this.#write(`${this.#erase()}${text}\n${this.#progressText()}`);
    this.#check();
  }

  /** An empty line and a heading. */
  heading(text: string): void {
    this.line();
    this.line(this.tone("strong", text));
  }

  /** A label, and text from the fifteenth column on. */
  row(label: string, text: string): void {
    this.line(`  ${this.tone("faint", label.padEnd(LABEL_WIDTH))}${text}`);
  }

  /** A bar of `count` parts. */
  bar(count: number): string {
    return this.tone("bar", (this.#options.unicode ? "█" : "#").repeat(count));
  }

  /** What is being done now, shown at the bottom of a terminal until it changes; empty shows nothing. */
  progress(text: string): void {
    if (!this.#options.terminal || this.#closed) return;
    const erased = this.#erase();
    this.#progress = text;
    this.#write(erased + this.#progressText());
    clearInterval(this.#timer);
    this.#timer = text === "" ? undefined : setInterval(
      () => this.#write(this.#erase() + this.#progressText()),
      PROGRESS_INTERVAL_MS,
    );
    this.#check();
  }

  /** Ends the line of progress. From now on it is no failure that nobody reads. */
  close(): void {
    clearInterval(this.#timer);
    const erased = this.#erase();
    this.#progress = "";
    this.#closed = true;
    this.#write(erased);
  }

  #erase(): string {
    return this.#progress === "" ? "" : "\r\x1b[2K";
  }

  #progressText(): string {
    if (this.#progress === "") return "";
    const text = `${this.seconds.toFixed(1).padStart(5)} s  ${this.#progress}`;
    // A line that wraps could not be erased.
    return this.tone("faint", text.slice(0, Math.max(10, this.#options.columns() - 1)));
  }

  #write(text: string): void {
    if (this.#broken !== undefined || text === "") return;
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
