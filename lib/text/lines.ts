/**
 * Lines of a text: the first one, how many there are, on which one an offset is; a text in pieces of whole lines, and lines of arriving bytes.
 *
 * @module
 */
import { GrowingBytes } from "./bytes.ts";

/** The text up to its first line end. */
export function firstLine(text: string): string {
  const end = text.indexOf("\n");
  return end < 0 ? text : text.slice(0, end);
}

/** How many line ends there are before the offset `end`. */
export function countLines(text: string, end = text.length): number {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0 && at < end; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

/** Offsets at which the lines of a text begin. Lines are counted from 0. */
export class LineStarts {
  readonly #starts = [0];

  /** Line starts of a whole text. */
  static of(text: string): LineStarts {
    const lines = new LineStarts();
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines.add(at + 1);
    return lines;
  }

  /** Records that the next line begins at this offset. Bound, so that it can be handed over. */
  readonly add = (offset: number): void => {
    this.#starts.push(offset);
  };

  /** Offset at which a line begins; undefined if there are not so many. */
  startOf(line: number): number | undefined {
    return this.#starts[line];
  }

  /** The line that an offset is on. */
  lineAt(offset: number): number {
    let low = 0;
    let high = this.#starts.length;
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (this.#starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low;
  }
}

/** Some milliseconds of work for a regular expression. */
const PIECE_CHARACTERS = 2 ** 20;

/** Pieces of whole lines, each with its offset. Only one line may be longer than a piece. */
export function* linePieces(
  text: string,
  size: number = PIECE_CHARACTERS,
): Generator<readonly [offset: number, piece: string]> {
  for (let start = 0; start < text.length;) {
    const newline = start + size >= text.length ? -1 : text.indexOf("\n", start + size);
    const end = newline < 0 ? text.length : newline + 1;
    yield [start, text.slice(start, end)];
    start = end;
  }
}

const NEWLINE = 10;

/**
 * Takes one line, without its end: the bytes from `start` to `end`, which may change after the call. `length` is that of the whole line,
 * of which less may be there.
 */
export type TakeLine = (bytes: Uint8Array, start: number, end: number, length: number) => void;

/** Cuts bytes into lines, without copying, but for a line that comes in several pieces. */
export class LineCutter {
  readonly #take: TakeLine;
  readonly #mostBytes: number;
  readonly #open = new GrowingBytes();
  #openBytes = 0;

  /** @param mostBytes limit of the kept part of a line that comes in several pieces */
  constructor(take: TakeLine, mostBytes = Infinity) {
    this.#take = take;
    this.#mostBytes = mostBytes;
  }

  /** Number of bytes of a line whose end has not come yet. */
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

  /** Passes on the open line, as if its end had come. */
  end(): void {
    const length = this.#openBytes;
    if (length === 0) return;
    const line = this.#open.view();
    this.clear();
    this.#take(line, 0, line.length, length);
  }

  /** Forgets the open line. */
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
