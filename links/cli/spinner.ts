/**
 * Stand-in for `jsr:@std/cli/unstable-spinner`, for builders that cannot reach JSR. Same names, options and output as the
 * real package; colours are not there.
 *
 * @module
 */

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const INTERVAL_MS = 75;
const ERASE_LINE = "\r\x1b[K";
const PLAIN = "\x1b[0m";

/** Options of {@linkcode Spinner}. */
export interface SpinnerOptions {
  /** What is shown in turn. @default {["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]} */
  spinner?: string[];
  /** What stands behind it. */
  message?: string;
  /** Milliseconds from one to the next. @default {75} */
  interval?: number;
  /** Where it is drawn. @default {Deno.stdout} */
  output?: typeof Deno.stderr | typeof Deno.stdout;
}

/** A line that moves while something is being done. */
export class Spinner {
  /** What stands behind it; shown from the next frame on. */
  message: string;
  readonly #frames: readonly string[];
  readonly #intervalMs: number;
  readonly #output: typeof Deno.stderr | typeof Deno.stdout;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(options: SpinnerOptions = {}) {
    this.message = options.message ?? "";
    this.#frames = options.spinner ?? FRAMES;
    this.#intervalMs = options.interval ?? INTERVAL_MS;
    this.#output = options.output ?? Deno.stdout;
  }

  /** Draws, and goes on drawing. Does nothing while it does, or where somebody else writes to the stream. */
  start(): void {
    if (this.#timer !== undefined || this.#output.writable.locked) return;
    let count = 0;
    const draw = (): void => {
      const frame = this.#frames[count++ % this.#frames.length] ?? "";
      this.#write(`${ERASE_LINE}${frame}${Deno.noColor ? "" : PLAIN} ${this.message}`);
    };
    this.#timer = setInterval(draw, this.#intervalMs);
    draw();
  }

  /** Takes the line away. */
  stop(): void {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#write(ERASE_LINE);
  }

  #write(text: string): void {
    this.#output.writeSync(new TextEncoder().encode(text));
  }
}
