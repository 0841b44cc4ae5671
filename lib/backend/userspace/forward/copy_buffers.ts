/**
 * The memory that bytes go through on their way: little for who waits, more while bytes flow.
 *
 * @module
 */

/** What most reads wait with: most of the connections of a node are silent most of the time. */
const SMALL_BYTES = 256;
/** As much as a socket yields at once when bytes flow. */
const LARGE_BYTES = 64 * 1024;
/** Small buffers are parts of larger memory, because each piece of memory costs as much again in the runtime. */
const SLAB_SLICES = 256;
/** With so many large buffers in use (8 MiB), no more are given to who may wait: only where bytes flow there may be more. */
const MOST_WAITING = 128;
/** How many large buffers stay at hand. */
const MOST_SPARE = 64;

/** Gives buffers to those who copy, and takes them back. A buffer is of its holder alone. */
export class CopyBuffers {
  readonly #small: Uint8Array<ArrayBuffer>[] = [];
  readonly #large: Uint8Array<ArrayBuffer>[] = [];
  #smallInUse = 0;
  #largeInUse = 0;

  /** Bytes of all buffers that somebody holds. */
  get bytesInUse(): number {
    return this.#smallInUse * SMALL_BYTES + this.#largeInUse * LARGE_BYTES;
  }

  /** One for the first read of a connection. */
  first(): Uint8Array<ArrayBuffer> {
    return this.#take(this.#largeInUse < MOST_WAITING);
  }

  /**
   * One for the next read, in the place of the one that the last read filled so far: more follows what fills a buffer, and silence what
   * does not.
   */
  next(buffer: Uint8Array<ArrayBuffer>, filled: number): Uint8Array<ArrayBuffer> {
    const isLarge = buffer.length === LARGE_BYTES;
    const wantsLarge = filled === buffer.length ||
      isLarge && filled > SMALL_BYTES && this.#largeInUse <= MOST_WAITING;
    if (wantsLarge === isLarge) return buffer;
    this.giveBack(buffer);
    return this.#take(wantsLarge);
  }

  /** Its holder uses it no more. */
  giveBack(buffer: Uint8Array<ArrayBuffer>): void {
    if (buffer.length === SMALL_BYTES) {
      this.#smallInUse--;
      this.#small.push(buffer);
      return;
    }
    this.#largeInUse--;
    if (this.#large.length < MOST_SPARE) this.#large.push(buffer);
  }

  #take(large: boolean): Uint8Array<ArrayBuffer> {
    if (large) {
      this.#largeInUse++;
      return this.#large.pop() ?? new Uint8Array(LARGE_BYTES);
    }
    if (this.#small.length === 0) this.#addSlab();
    this.#smallInUse++;
    return this.#small.pop()!;
  }

  #addSlab(): void {
    const slab = new ArrayBuffer(SLAB_SLICES * SMALL_BYTES);
    for (let at = slab.byteLength - SMALL_BYTES; at >= 0; at -= SMALL_BYTES) {
      this.#small.push(new Uint8Array(slab, at, SMALL_BYTES));
    }
  }
}
