/**
 * A whole list while it comes in: nothing of it counts before all of it is there.
 *
 * @module
 */
import type { SourceEvent } from "../source.ts";
import { UnreadableListError, type WatchEvent } from "./kube_messages.ts";
import { type DecodedObjects, identityOfRaw, type KubeStore, type RefusedObject } from "./kube_store.ts";

/** What was listed so far, in pages or as the events that a watch begins with. */
export class Listing {
  readonly #store: KubeStore;
  readonly #listed: DecodedObjects = new Map();
  #refused: RefusedObject[] = [];
  readonly #everRefused = new Set<string>();

  constructor(store: KubeStore) {
    this.#store = store;
  }

  /** Takes API objects. */
  take(raws: readonly unknown[]): void {
    for (const each of this.#store.decodeInto(this.#listed, raws)) {
      this.#refused.push(each);
      this.#everRefused.add(each.identity);
    }
  }

  /** Takes an event; what is changed or deleted while the list is sent comes as such. */
  takeEvent({ type, object }: WatchEvent): void {
    if (type === "BOOKMARK") return;
    const identity = identityOfRaw(object);
    if (this.#everRefused.delete(identity)) {
      this.#refused = this.#refused.filter((refused) => refused.identity !== identity);
    }
    if (type === "DELETED") this.#listed.delete(identity);
    else this.take([object]);
  }

  /**
   * Makes what was listed all there is, and returns what that changes.
   *
   * @throws {UnreadableListError} if there were objects and none can be read: taken for a list, that would take everything away
   */
  finish(path: string): SourceEvent[] {
    const [first] = this.#refused;
    if (first !== undefined && this.#listed.size === 0) {
      const count = this.#refused.length;
      throw new UnreadableListError(
        `GET ${path}: none of ${count} objects can be read: ${first.object}: ${first.message}`,
      );
    }
    return this.#store.replaceAll(this.#listed, this.#refused);
  }
}
