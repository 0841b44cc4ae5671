/**
 * A bar at the bottom of a terminal that shows how far long work is.
 *
 * @module
 */
import { ProgressBar } from "@std/cli/unstable-progress-bar";
import type { Terminal } from "../../lib/cli/io.ts";
import { cutToWidth } from "../../lib/text/columns.ts";
import { DrawnOutput } from "../../lib/cli/terminal/drawing.ts";

const LONGEST_BAR = 30;
/** Of a narrow terminal the text has more than the bar. */
const SHARE_OF_BAR = 1 / 3;

/** How far work is, shown on a terminal; where there is none, nothing is drawn. */
export class ProgressLine implements AsyncDisposable {
  readonly #bar: ProgressBar | null;
  #text = "";

  /** @param max how far it will go, in any unit */
  constructor(terminal: Terminal | null, max: number) {
    this.#bar = terminal === null ? null : new ProgressBar({
      max,
      writable: drawnOn(terminal),
      barLength: Math.min(LONGEST_BAR, Math.floor(terminal.columns() * SHARE_OF_BAR)),
      clear: true,
      // One column stays free: a line that wraps could not be taken away.
      formatter: ({ styledTime, progressBar }) =>
        cutToWidth(`${styledTime} ${progressBar} ${this.#text}`, terminal.columns() - 1),
    });
  }

  /** Says how far it is, and in words; shown within a second. */
  reach(value: number, text: string): void {
    this.#text = text;
    if (this.#bar !== null) this.#bar.value = value;
  }

  /** Takes the line away. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#bar?.stop();
  }
}

function drawnOn(terminal: Terminal): WritableStream<Uint8Array> {
  const stream = new DrawnOutput(terminal).asStream();
  return new WritableStream({ write: (bytes) => void stream.writeSync(bytes) });
}
