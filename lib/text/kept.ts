/**
 * Lists and texts in the form in which they take the least memory, for what is kept by the hundred thousand.
 *
 * @module
 */

/** Shared by all empty lists. */
const NONE: readonly never[] = Object.freeze([]);

/** A list with the same items and without room for more: one that grew item by item has room for 17 from its first on. */
export function tight<T>(list: readonly T[]): readonly T[] {
  return list.length === 0 ? NONE : list.slice();
}

/** More different texts than these are not shared by many objects. */
const MAX_SHARED = 8192;

/** Texts that many objects have in common, each kept once. */
export class SharedTexts {
  readonly #texts = new Map<string, string>();
  readonly #max: number;

  /** @param max with one text more, all are forgotten and it begins anew */
  constructor(max = MAX_SHARED) {
    this.#max = max;
  }

  /** An equal text: the very one that was given out before, if there was one. */
  of(text: string): string {
    const known = this.#texts.get(text);
    if (known !== undefined) return known;
    if (this.#texts.size >= this.#max) this.#texts.clear();
    this.#texts.set(text, text);
    return text;
  }
}
