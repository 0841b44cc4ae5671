/**
 * A map of what was read so far, which remembers what was looked up and not found: a walk through rules that are read in parts shows
 * which part is needed next.
 *
 * @module
 */

/** What is known, by its key; a key that was looked up and is not known is among `asked`. */
export class PartialMap<V> extends Map<string, V> {
  /** Looked up, and not read yet. */
  readonly asked: Set<string> = new Set();
  readonly #absent = new Set<string>();

  override get(key: string): V | undefined {
    const value = super.get(key);
    if (value === undefined) this.#ask(key);
    return value;
  }

  override has(key: string): boolean {
    const isKnown = super.has(key);
    if (!isKnown) this.#ask(key);
    return isKnown;
  }

  /** Says what is there under the key; undefined: nothing. */
  answer(key: string, value: V | undefined): void {
    this.asked.delete(key);
    if (value === undefined) this.#absent.add(key);
    else this.set(key, value);
  }

  #ask(key: string): void {
    if (!this.#absent.has(key)) this.asked.add(key);
  }
}

/** Something cannot be read in parts: everything is read instead. */
export class NotPartialError extends Error {
  override readonly name = "NotPartialError";
}
