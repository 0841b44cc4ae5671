/**
 * Bytes that come in pieces → lines.
 *
 * @module
 */
import { GrowingBytes } from "./growing_bytes.ts";

const NEWLINE = 10;

/**
 * Takes one line, without its end: the bytes from `start` to `end`, which may change after the call. `length` is that of the whole line,
 * of which less may be there.
 */
export type TakeLine = (bytes: Uint8Array, start: number, end: number, length: number) => void;

/** Cuts without copying, but for a line that comes in several pieces. */
export class LineCutter {
  readonly #take: TakeLine;
  readonly #mostBytes: number;
  readonly #open = new GrowingBytes();
  #openBytes = 0;

  /** @param mostBytes so much is kept of a line that comes in several pieces */
  constructor(take: TakeLine, mostBytes = Infinity) {
    this.#take = take;
    this.#mostBytes = mostBytes;
  }

  /** How much has come of a line whose end has not. */
  get openBytes(): number {
    return this.#openBytes;
  }

  /** Takes the next bytes; they may change after the call. */
  write(bytes: Uint8Array): void {
    let at = 0;
    while (at < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, at);
      const end = newline < 0 ? bytes.length : newline;
      if (newline < 0 || this.#openBytes > 0) this.#keep(bytes, at, end);
      else this.#take(bytes, at, end, end - at);
      if (newline >= 0 && this.#openBytes > 0) this.end();
      at = end + 1;
    }
  }

  /** What has come of a line is the whole of it. */
  end(): void {
    const length = this.#openBytes;
    if (length === 0) return;
    const line = this.#open.view();
    this.clear();
    this.#take(line, 0, line.length, length);
  }

  /** Forgets what has come of a line. */
  clear(): void {
    this.#open.clear();
    this.#openBytes = 0;
  }

  #keep(bytes: Uint8Array, start: number, end: number): void {
    const room = this.#mostBytes - this.#open.length;
    if (room > 0) this.#open.add(bytes.subarray(start, Math.min(end, start + room)));
    this.#openBytes += end - start;
  }
}
