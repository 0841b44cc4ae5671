/**
 * What modes keep beyond one life of the proxy: the next life of the same process finds it, and the end of the process ends it.
 *
 * @module
 */

/** Something that the lives of a process share. */
export interface Shared {
  /** Told when the rules of a life are in force, those of all IP families. */
  inForce(): void;
  /** Ends it; resolves when it has ended, or soon after `signal` aborts. */
  end(signal: AbortSignal): Promise<void>;
}

/** One of each kind, made by the first who wants it. */
export class Afterlife {
  readonly #kept = new Map<unknown, Shared>();

  /** The one of this kind. */
  share<T extends Shared>(kind: new () => T): T {
    let found = this.#kept.get(kind);
    if (found === undefined) this.#kept.set(kind, found = new kind());
    return found as T;
  }

  /** The rules of a life are in force, those of all IP families. */
  inForce(): void {
    for (const shared of this.#kept.values()) shared.inForce();
  }

  /** Ends all. */
  async end(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#kept.values()].map((shared) => shared.end(signal)));
  }
}
