/**
 * The memory of the thread that forwards: what bytes go through on their way, little for connections that wait and more while bytes flow,
 * and when the garbage of connections is collected.
 *
 * @module
 */
import { collectGarbage } from "../../../kernel/garbage.ts";

/** What most reads wait with: most of the connections of a node are silent most of the time. */
const SMALL_BYTES = 128;
/** As much as a socket yields at once when bytes flow. */
const LARGE_BYTES = 64 * 1024;
/** Small buffers are parts of larger memory, because each piece of memory costs as much again in the runtime. */
const SLAB_SLICES = 512;
/** With more large buffers in use (8 MiB), nobody waits with one: they are where bytes flow. */
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
    return this.#take(false);
  }

  /** True if so many bytes are all that a small buffer holds, so that more of the same message is likely there. */
  isTooSmall(buffer: Uint8Array<ArrayBuffer>, filled: number): boolean {
    return buffer.length === SMALL_BYTES && filled === SMALL_BYTES;
  }

  /** A large one that begins with all that is in this small one, in its place. */
  grown(small: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const large = this.#take(true);
    large.set(small);
    this.giveBack(small);
    return large;
  }

  /** One for the next read, in the place of the one that was filled so far by the last: what was not filled is followed by silence. */
  next(buffer: Uint8Array<ArrayBuffer>, filled: number): Uint8Array<ArrayBuffer> {
    if (buffer.length === SMALL_BYTES || filled === LARGE_BYTES) return buffer;
    if (filled > SMALL_BYTES && this.#largeInUse <= MOST_WAITING) return buffer;
    this.giveBack(buffer);
    return this.#take(false);
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

/** So many sessions that came or went have left some megabytes. */
const WORTH = 2_000;
/** After so many looks without news it is quiet. */
const QUIET_LOOKS = 4;

/** Gives back what connections have left while no bytes flow, because all of them would wait. Is told at equal intervals how things are. */
export class QuietGarbage {
  readonly #collect: () => void;
  #quietLooks = 0;
  #collectedAt = 0;

  /** @param collect gives memory back */
  constructor(collect: () => void = collectGarbage) {
    this.#collect = collect;
  }

  /**
   * Looks.
   *
   * @param isQuiet true if nothing was forwarded since the last look
   * @param changes how many sessions came, and how many went, up to now
   */
  look(isQuiet: boolean, changes: number): void {
    this.#quietLooks = isQuiet ? this.#quietLooks + 1 : 0;
    if (this.#quietLooks !== QUIET_LOOKS || changes - this.#collectedAt < WORTH) return;
    this.#collectedAt = changes;
    this.#collect();
  }
}
