/**
 * The last few of something.
 *
 * @module
 */

/** Keeps the newest `capacity` items, each for the cost of writing it down. */
export class Recent<Item> {
  readonly #capacity: number;
  readonly #items: Item[] = [];
  #next = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  add(item: Item): void {
    this.#items[this.#next] = item;
    this.#next = (this.#next + 1) % this.#capacity;
  }

  /** Puts another item in the place of the newest one that `isMeant`, if there is one. */
  replaceNewest(isMeant: (item: Item) => boolean, replacement: (item: Item) => Item): void {
    const newest = this.items.findLast(isMeant);
    if (newest !== undefined) this.#items[this.#items.indexOf(newest)] = replacement(newest);
  }

  /** The oldest first. */
  get items(): Item[] {
    if (this.#items.length < this.#capacity) return [...this.#items];
    return [...this.#items.slice(this.#next), ...this.#items.slice(0, this.#next)];
  }
}
