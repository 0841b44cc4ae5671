/**
 * Stand-in for `jsr:@std/cli/unstable-progress-bar`, for builders that cannot reach JSR. Same names, options and output as
 * the real package; only the options used are there.
 *
 * @module
 */

const LENGTH = 50;
const INTERVAL_MS = 1_000;
const ERASE_LINE = "\r\x1b[K";

/** What a line is made of. */
export interface ProgressBarFormatter {
  /** Time since the bar was made, as `mm:ss`. */
  styledTime: string;
  /** The bar itself, e.g. `###-------`. */
  progressBar: string;
  /** Milliseconds since the bar was made. */
  time: number;
  /** How far it is. */
  value: number;
  /** How far it will go. */
  max: number;
}

/** Options of {@linkcode ProgressBar}. */
export interface ProgressBarOptions {
  /** Where it is drawn. @default {Deno.stderr.writable} */
  writable?: WritableStream<Uint8Array>;
  /** How far it is at first. @default {0} */
  value?: number;
  /** How far it will go. */
  max: number;
  /** Characters of the bar. @default {50} */
  barLength?: number;
  /** What stands for what is done. @default {"#"} */
  fillChar?: string;
  /** What stands for what is left. @default {"-"} */
  emptyChar?: string;
  /** Whether the line goes at the end. @default {false} */
  clear?: boolean;
  /** The line. @default {`[mm:ss] [###-------] [0.24/97.6 KiB]`} */
  formatter?: (formatter: ProgressBarFormatter) => string;
  /** Whether the stream stays open at the end. @default {true} */
  keepOpen?: boolean;
  /** Milliseconds from one drawing to the next. @default {1000} */
  interval?: number;
}

/** A line that shows how far something is, drawn until {@linkcode ProgressBar.stop}. */
export class ProgressBar {
  /** How far it is. */
  value: number;
  /** How far it will go. */
  max: number;
  readonly #options: ProgressBarOptions;
  readonly #writer: WritableStreamDefaultWriter<string>;
  readonly #piped: Promise<void>;
  readonly #startedMs = Date.now();
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(options: ProgressBarOptions) {
    this.value = options.value ?? 0;
    this.max = options.max;
    this.#options = options;
    const text = new TextEncoderStream();
    this.#piped = text.readable
      .pipeTo(options.writable ?? Deno.stderr.writable, { preventClose: options.keepOpen ?? true })
      .catch(() => clearInterval(this.#timer));
    this.#writer = text.writable.getWriter();
    this.#timer = setInterval(() => void this.#write(this.#line()), options.interval ?? INTERVAL_MS);
    void this.#write(this.#line());
  }

  /** Draws once more, or takes the line away with `clear`, and ends. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#write(this.#options.clear ? ERASE_LINE : `${this.#line()}\n`);
    await this.#writer.close().catch(() => undefined);
    await this.#piped;
  }

  /** A stream that fails is no reason to fail, as in the real package: the bar is not what the work is about. */
  async #write(text: string): Promise<void> {
    await this.#writer.write(text).catch(() => undefined);
  }

  #line(): string {
    const { barLength = LENGTH, fillChar = "#", emptyChar = "-", formatter = defaultLine } = this.#options;
    const time = Date.now() - this.#startedMs;
    const filled = Math.trunc(Math.min(Math.max(this.value / this.max, 0), 1) * barLength);
    const twoDigits = (value: number): string => String(Math.trunc(value)).padStart(2, "0");
    const line = formatter({
      styledTime: `${twoDigits(time / 60_000)}:${twoDigits(time / 1_000 % 60)}`,
      progressBar: fillChar.repeat(filled) + emptyChar.repeat(barLength - filled),
      time,
      value: this.value,
      max: this.max,
    });
    return `${ERASE_LINE}${line}`;
  }
}

const KIB = 1024;

function defaultLine({ styledTime, progressBar, value, max }: ProgressBarFormatter): string {
  const power = Math.max(1, Math.floor(Math.log2(max) / 10));
  const size = (bytes: number): string => (bytes / KIB ** power).toFixed(2);
  return `[${styledTime}] [${progressBar}] [${size(value)}/${size(max)} ${"KMGTPEZY"[power - 1] ?? ""}iB]`;
}
