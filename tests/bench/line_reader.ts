/**
 * Lines of a program's output, one at a time.
 *
 * @module
 */

/** Reads a stream by lines. */
export class LineReader {
  readonly #reader: ReadableStreamDefaultReader<string>;
  #rest = "";

  constructor(stream: ReadableStream<Uint8Array<ArrayBuffer>>) {
    this.#reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** The next line without its end; null at the end of the stream, whatever is left then. */
  async next(): Promise<string | null> {
    while (!this.#rest.includes("\n")) {
      const { value } = await this.#reader.read();
      if (value === undefined) return null;
      this.#rest += value;
    }
    const end = this.#rest.indexOf("\n");
    const line = this.#rest.slice(0, end);
    this.#rest = this.#rest.slice(end + 1);
    return line;
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }
}
