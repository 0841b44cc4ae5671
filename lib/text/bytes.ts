/**
 * Bytes put together as they come, and base64 of texts.
 *
 * @module
 */

/** A byte buffer that takes time and memory in proportion to its bytes, however small the pieces are. */
export class GrowingBytes {
  #bytes = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(length, 2 * this.#bytes.length));
      larger.set(this.view());
      this.#bytes = larger;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** All bytes, valid until the next piece. */
  view(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Forgets the bytes, but keeps the memory for the next ones. */
  clear(): void {
    this.#length = 0;
  }
}

/** The UTF-8 of the text: `btoa` takes no more than Latin-1. */
export function base64Of(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
