/**
 * The delivered objects of one resource of the API server; turns lists and single changes into events.
 *
 * @module
 */
import type { ApiObject } from "../../model/objects.ts";
import { decodeKind, describeItem, rawNameOf } from "../decode/decode.ts";
import { DecodeError } from "../decode/decode_values.ts";
import { MalformedObject } from "../decode/protobuf_serializer.ts";
import { type Rejection, sameObject, type SourceEvent } from "../source.ts";
import type { WatchedResource } from "./kube_source.ts";
import { UnreadableListError, type WatchEvent } from "./serializers.ts";

/** An API object that cannot be read. */
interface RefusedObject {
  readonly kind: "refused";
  /** e.g. `Service shop/web`. */
  readonly object: string;
  readonly message: string;
}

/** One object in a list: its last good form, and how a later one is malformed. */
interface Listed {
  readonly object?: ApiObject;
  readonly refused?: RefusedObject;
}

/** The objects of one resource. A malformed one is reported, and its last good form stays in force. */
export class KubeStore {
  readonly #resource: WatchedResource;
  /** URL of the resource, for rejections. */
  readonly #where: string;
  readonly #reject: (rejection: Rejection) => void;
  /** Refusals by identity, in all maps here `namespace/name`: each is reported once, not with each list and event. */
  readonly #refused = new Map<string, Rejection>();
  readonly #objects = new Map<string, ApiObject>();

  constructor(resource: WatchedResource, where: string, reject: (rejection: Rejection) => void) {
    this.#resource = resource;
    this.#where = where;
    this.#reject = reject;
  }

  /** Identities of all objects in force. */
  identities(): string[] {
    return [...this.#objects.keys()];
  }

  /** The object in force with an identity. */
  objectAt(identity: string): ApiObject | undefined {
    return this.#objects.get(identity);
  }

  /** All objects in force; they may change while they are taken. */
  objects(): Iterable<ApiObject> {
    return this.#objects.values();
  }

  /** Current refusals: objects that cannot be read. */
  refusals(): Iterable<Rejection> {
    return this.#refused.values();
  }

  /** Reads an API object. */
  decode(raw: unknown): ApiObject | RefusedObject {
    try {
      if (raw instanceof MalformedObject) throw new DecodeError("", raw.reason);
      return decodeKind(this.#resource.objectKind, raw);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      const object = describeItem({ raw, kind: this.#resource.objectKind });
      return { kind: "refused", object, message: error.message };
    }
  }

  /** Replaces all objects by those that were listed. */
  replaceAll(listed: ReadonlyMap<string, Listed>): SourceEvent[] {
    const events: SourceEvent[] = [];
    for (const identity of [...this.#refused.keys()]) {
      if (!listed.has(identity)) this.#refused.delete(identity);
    }
    for (const [identity, { object, refused }] of listed) {
      if (object !== undefined) this.#take(identity, object, events);
      if (refused !== undefined) this.#take(identity, refused, events);
    }
    for (const identity of this.identities()) {
      if (!listed.has(identity)) this.#replace(identity, undefined, events);
    }
    return events;
  }

  /** Takes an API object that was added or modified. */
  put(raw: unknown, events: SourceEvent[]): void {
    this.#take(identityOfRaw(raw), this.decode(raw), events);
  }

  /** Takes an API object that was deleted; only its name is looked at. */
  delete(raw: unknown, events: SourceEvent[]): void {
    const identity = identityOfRaw(raw);
    this.#refused.delete(identity);
    this.#replace(identity, undefined, events);
  }

  /** Takes a decoded object; of a refused one the last good form stays. */
  #take(identity: string, object: ApiObject | RefusedObject, events: SourceEvent[]): void {
    if (object.kind !== "refused") {
      this.#refused.delete(identity);
      return this.#replace(identity, object, events);
    }
    if (this.#refused.get(identity)?.message === object.message) return;
    const rejection = { where: this.#where, object: object.object, message: object.message };
    this.#refused.set(identity, rejection);
    this.#reject(rejection);
  }

  #replace(identity: string, object: ApiObject | undefined, events: SourceEvent[]): void {
    const old = this.#objects.get(identity);
    // Of two equal objects the delivered one is kept, so that its memory is not used twice.
    if (old !== undefined && object !== undefined && sameObject(old, object)) return;
    if (object === undefined) this.#objects.delete(identity);
    else this.#objects.set(identity, object);
    if (old === undefined) {
      if (object !== undefined) events.push({ type: "add", object });
    } else events.push(object === undefined ? { type: "delete", old } : { type: "update", old, object });
  }
}

/** `namespace/name` of a value that may be no object, with names that may be no texts. */
function identityOfRaw(raw: unknown): string {
  const { namespace, name } = rawNameOf(raw);
  return `${typeof namespace === "string" ? namespace : ""}/${typeof name === "string" ? name : ""}`;
}

/** A list in progress, in pages or as the events that a watch begins with. */
export class Listing {
  readonly #store: KubeStore;
  readonly #listed = new Map<string, Listed>();

  constructor(store: KubeStore) {
    this.#store = store;
  }

  /** Takes API objects. */
  take(raws: readonly unknown[]): void {
    for (const raw of raws) {
      const identity = identityOfRaw(raw);
      const object = this.#store.decode(raw);
      const listed = object.kind === "refused"
        ? { ...this.#listed.get(identity), refused: object }
        : { object };
      this.#listed.set(identity, listed);
    }
  }

  /** Takes an event; changes and deletions while the list is sent come as such. */
  takeEvent({ type, object }: WatchEvent): void {
    if (type === "DELETED") this.#listed.delete(identityOfRaw(object));
    else if (type !== "BOOKMARK") this.take([object]);
  }

  /**
   * Replaces all objects by those that were listed, and returns the changes.
   *
   * @throws {UnreadableListError} if there were objects and none can be read: taken for a list, that would take everything away
   */
  finish(path: string): SourceEvent[] {
    const [first] = this.#listed.values();
    const isLost = ([identity, { object }]: [string, Listed]): boolean =>
      object === undefined && this.#store.objectAt(identity) === undefined;
    if (first?.refused !== undefined && this.#listed.entries().every(isLost)) {
      const { object, message } = first.refused;
      throw new UnreadableListError(
        `GET ${path}: none of ${this.#listed.size} objects can be read: ${object}: ${message}`,
      );
    }
    return this.#store.replaceAll(this.#listed);
  }
}
