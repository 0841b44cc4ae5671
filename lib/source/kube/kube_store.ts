/**
 * What one resource of the API server holds, as far as it was delivered; turns lists and single changes into events.
 *
 * @module
 */
import type { V1ObjectMeta } from "@kubernetes/client-node";
import type { ApiObject } from "../../model/objects.ts";
import type { Raw, RawKubernetesObject } from "../decode/api_json.ts";
import { describeItem } from "../decode/decode.ts";
import { DecodeError } from "../decode/decode_values.ts";
import { MalformedObject } from "../decode/protobuf_stream.ts";
import { tight } from "../../text/kept.ts";
import { sameObject } from "../events.ts";
import type { WatchedResource } from "./kube_resources.ts";
import type { Rejection, SourceEvent } from "../source.ts";

/** API identity (`namespace/name`) → what the API object stands for: one object, or several for v1 Endpoints. */
export type DecodedObjects = Map<string, readonly ApiObject[]>;

/** An API object that cannot be read. */
export interface RefusedObject {
  /** As of {@linkcode DecodedObjects}. */
  readonly identity: string;
  /** e.g. `Service shop/web`. */
  readonly object: string;
  readonly message: string;
}

/** The objects of one resource. A malformed one is reported, and its last good form stays in force. */
export class KubeStore {
  readonly #resource: WatchedResource;
  /** Of the objects' origin, for rejections. */
  readonly #where: string;
  readonly #reject: (rejection: Rejection) => void;
  /** By identity. Nobody hears of one again with each list and each event. */
  readonly #refused = new Map<string, Rejection>();
  readonly #objects: DecodedObjects = new Map();

  constructor(resource: WatchedResource, where: string, reject: (rejection: Rejection) => void) {
    this.#resource = resource;
    this.#where = where;
    this.#reject = reject;
  }

  /** Identities of all objects in force. */
  identities(): string[] {
    return [...this.#objects.keys()];
  }

  /** What stands under an identity now. */
  objectsAt(identity: string): readonly ApiObject[] {
    return this.#objects.get(identity) ?? [];
  }

  /** All objects in force; they may change while they are taken. */
  *objects(): Generator<ApiObject> {
    for (const objects of this.#objects.values()) yield* objects;
  }

  /** What cannot be read as it is now. */
  refusals(): Iterable<Rejection> {
    return this.#refused.values();
  }

  /**
   * Decodes the API objects of a list into `listed`.
   *
   * @returns those that are malformed; their last good form is in `listed`, if there is one
   */
  decodeInto(listed: DecodedObjects, raws: readonly unknown[]): RefusedObject[] {
    const refused: RefusedObject[] = [];
    for (const raw of raws) {
      const identity = identityOfRaw(raw);
      try {
        if (raw instanceof MalformedObject) throw new DecodeError("", raw.reason);
        listed.set(identity, this.#resource.decode(raw));
      } catch (error) {
        if (!(error instanceof DecodeError)) throw error;
        const object = describeItem({ raw, kind: this.#resource.objectKind });
        refused.push({ identity, object, message: error.message });
        const known = this.#objects.get(identity);
        if (known !== undefined) listed.set(identity, known);
      }
    }
    return refused;
  }

  /** Makes `listed` all there is that can be read, and `refused` all that cannot. */
  replaceAll(listed: DecodedObjects, refused: readonly RefusedObject[]): SourceEvent[] {
    const events: SourceEvent[] = [];
    const stillRefused = new Set(refused.map(({ identity }) => identity));
    for (const identity of [...this.#refused.keys()]) {
      if (!stillRefused.has(identity)) this.#refused.delete(identity);
    }
    this.#tell(refused);
    for (const [identity, objects] of listed) this.#replace(identity, objects, events);
    for (const identity of this.identities()) {
      if (!listed.has(identity)) this.#replace(identity, [], events);
    }
    return events;
  }

  /** Takes an API object that was added or modified. */
  put(raw: unknown, events: SourceEvent[]): void {
    const listed: DecodedObjects = new Map();
    const refused = this.decodeInto(listed, [raw]);
    if (refused.length === 0) this.#refused.delete(identityOfRaw(raw));
    this.#tell(refused);
    for (const [identity, objects] of listed) this.#replace(identity, objects, events);
  }

  /** Takes an API object that was deleted; only its name is looked at. */
  delete(raw: unknown, events: SourceEvent[]): void {
    const identity = identityOfRaw(raw);
    this.#refused.delete(identity);
    this.#replace(identity, [], events);
  }

  #tell(refused: readonly RefusedObject[]): void {
    for (const { identity, object, message } of refused) {
      if (this.#refused.get(identity)?.message === message) continue;
      const rejection = { where: this.#where, object, message };
      this.#refused.set(identity, rejection);
      this.#reject(rejection);
    }
  }

  #replace(identity: string, objects: readonly ApiObject[], events: SourceEvent[]): void {
    const left = new Map(this.objectsAt(identity).map((object) => [object.name, object]));
    const inForce: ApiObject[] = [];
    for (const object of objects) {
      const old = left.get(object.name);
      left.delete(object.name);
      const isSame = old !== undefined && sameObject(old, object);
      // Others keep what was delivered: an equal one beside it would cost its memory a second time.
      inForce.push(isSame ? old : object);
      if (old === undefined) events.push({ type: "add", object });
      else if (!isSame) events.push({ type: "update", old, object });
    }
    if (inForce.length === 0) this.#objects.delete(identity);
    else this.#objects.set(identity, tight(inForce));
    for (const old of left.values()) events.push({ type: "delete", old });
  }
}

/** As of {@linkcode DecodedObjects}, of what may be no object at all, and names that are no texts. */
export function identityOfRaw(raw: unknown): string {
  const metadata = (raw as RawKubernetesObject | null)?.metadata as Raw<V1ObjectMeta> | null | undefined;
  const [namespace, name] = [metadata?.namespace, metadata?.name].map((part) =>
    typeof part === "string" ? part : ""
  );
  return `${namespace}/${name}`;
}
