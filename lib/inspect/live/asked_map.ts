/**
 * A map of what was read so far, which remembers what somebody has looked for and did not find in it: who walks packets through rules
 * that are read bit by bit learns which bit is wanted next.
 *
 * @module
 */

/** What is known, by its key; a key that was looked for and is not known is among `asked`. */
export class AskedMap<V> extends Map<string, V> {
  /** Looked for, and nobody has said yet whether it is there. */
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

/** Something cannot be read bit by bit: everything is read instead. */
export class UnreadableError extends Error {
  override readonly name = "UnreadableError";
}
