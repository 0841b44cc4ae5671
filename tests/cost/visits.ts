/**
 * Counts how many entries of maps, sets, arrays and records a piece of work looks at, of any owner: the runtime's own iterators
 * and list functions count while it goes on. Loops over an index do not.
 *
 * @module
 */

// deno-lint-ignore no-explicit-any
type Anything = any;
type Method = (this: Anything, ...args: readonly Anything[]) => Anything;

interface Patched {
  readonly owner: Record<string, Method>;
  readonly name: string;
  readonly original: Method;
}

const ITERATORS: readonly object[] = [new Map().entries(), new Set().values(), [].values()].map((iterator) =>
  Object.getPrototypeOf(iterator)
);
/** Functions that look at all entries of what they are called on, or may. */
const WHOLE_LIST: readonly string[] = [
  ...["concat", "every", "filter", "find", "findIndex", "findLast", "flat", "flatMap", "forEach", "includes"],
  ...["indexOf", "join", "map", "reduce", "slice", "some", "sort", "splice", "toSorted", "toSpliced"],
];
const WHOLE_SET: readonly string[] = [
  "forEach",
  "union",
  "difference",
  "intersection",
  "isSubsetOf",
  "isSupersetOf",
];
const OF_RECORDS: readonly string[] = ["keys", "values", "entries"];

/** Counts from its making until it is disposed; one at a time. */
export class Visits implements Disposable {
  count = 0;
  /** Its own making does not count. */
  #paused = 1;
  readonly #patched: Patched[] = [];

  constructor() {
    for (const iterator of ITERATORS) {
      this.#count(iterator, "next", ({ done }: Anything) => done === true ? 0 : 1);
    }
    for (const name of WHOLE_LIST) this.#count(Array.prototype, name, (_, list) => list.length);
    for (const name of WHOLE_SET) this.#count(Set.prototype, name, (_, set) => set.size);
    this.#count(Map.prototype, "forEach", (_, map) => map.size);
    for (const name of OF_RECORDS) this.#count(Object, name, (entries) => entries.length);
    this.#paused = 0;
  }

  /** Does work that does not count, such as that of a stand-in for the kernel. */
  async paused<T>(work: () => Promise<T>): Promise<T> {
    this.#paused++;
    try {
      return await work();
    } finally {
      this.#paused--;
    }
  }

  [Symbol.dispose](): void {
    this.#paused++;
    for (const { owner, name, original } of this.#patched) owner[name] = original;
  }

  /** `visited` tells from what a call returned, and what it was called on, how many entries it looked at. */
  #count(owner: object, name: string, visited: (returned: Anything, self: Anything) => number): void {
    const methods = owner as Record<string, Method>;
    const original = methods[name];
    if (original === undefined) throw new TypeError(`The runtime has no ${name} here`);
    this.#patched.push({ owner: methods, name, original });
    const add = (entries: number): void => {
      if (this.#paused === 0) this.count += entries;
    };
    methods[name] = function (...args: readonly Anything[]): Anything {
      // Of an array that is emptied by the call, what it had.
      const before = visited({ length: 0, done: true }, this);
      const returned = Reflect.apply(original, this, args);
      add(Math.max(before, visited(returned, this)));
      return returned;
    };
  }
}
