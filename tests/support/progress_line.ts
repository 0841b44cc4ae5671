/**
 * A progress bar at the bottom of a terminal, for long work.
 *
 * @module
 */
import { ProgressBar } from "@std/cli/unstable-progress-bar";
import type { Terminal } from "../../lib/cli/io.ts";
import { cutToWidth } from "../../lib/text/columns.ts";
import { DrawnOutput } from "../../lib/cli/terminal/drawing.ts";

const LONGEST_BAR = 30;
/** The bar's share of a narrow terminal; the text gets the rest. */
const SHARE_OF_BAR = 1 / 3;

/** Progress of work on a terminal; without a terminal nothing is drawn. */
export class ProgressLine implements AsyncDisposable {
  readonly #bar: ProgressBar | null;
  #text = "";

  /** @param max value at the end of the work, in any unit */
  constructor(terminal: Terminal | null, max: number) {
    this.#bar = terminal === null ? null : new ProgressBar({
      max,
      writable: drawnOn(terminal),
      barLength: Math.min(LONGEST_BAR, Math.floor(terminal.columns() * SHARE_OF_BAR)),
      clear: true,
      // One column stays free: a wrapped line could not be erased.
      formatter: ({ styledTime, progressBar }) =>
        cutToWidth(`${styledTime} ${progressBar} ${this.#text}`, terminal.columns() - 1),
    });
  }

  /** Sets progress and text; drawn within a second. */
  reach(value: number, text: string): void {
    this.#text = text;
    if (this.#bar !== null) this.#bar.value = value;
  }

  /** Erases the line. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#bar?.stop();
  }
}

function drawnOn(terminal: Terminal): WritableStream<Uint8Array> {
  const stream = new DrawnOutput(terminal).asStream();
  return new WritableStream({ write: (bytes) => void stream.writeSync(bytes) });
}
