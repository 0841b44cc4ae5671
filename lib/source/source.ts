/**
 * The contract between a source of objects (API server, files) and the sync loop.
 *
 * @module
 */
import type { ApiObject } from "../model/objects.ts";

/** A kind of objects, as the API's paths name it. */
export type ResourceKind = "services" | "endpointslices" | "nodes" | "servicecidrs";

/** The resource of each kind of objects. */
export const RESOURCE_OF: Readonly<Record<ApiObject["kind"], ResourceKind>> = {
  Node: "nodes",
  Service: "services",
  EndpointSlice: "endpointslices",
  ServiceCIDR: "servicecidrs",
};

/** One change. `old` is what this source delivered before under the same identity. */
export type SourceEvent =
  | { readonly type: "add"; readonly object: ApiObject }
  | { readonly type: "update"; readonly old: ApiObject; readonly object: ApiObject }
  | { readonly type: "delete"; readonly old: ApiObject }
  /** The first complete list of this kind has been delivered. Sent once per kind. */
  | { readonly type: "synced"; readonly kind: ResourceKind };

/** An object that was refused; the others go on. */
export interface Rejection {
  /** `file.yaml:12 (document 2)` or the API path. */
  readonly where: string;
  /** `Service shop/web`, as far as known; the path of a file that cannot be read at all. */
  readonly object: string;
  /** Field path and reason. */
  readonly message: string;
}

/** Receives the events of a source. Calls are synchronous, in order, and must not throw. */
export interface ResourceEventHandler {
  /** True: ServiceCIDRs are wanted. Only then does a source request them; no sync ever waits for them. */
  readonly wantsServiceCidrs?: boolean;
  /** Related changes arrive in one call, so that they end up in one sync. */
  events(batch: readonly SourceEvent[]): void;
  /** An object is refused; the others go on. */
  rejected(rejection: Rejection): void;
  /** The origin of this kind gave a sign of life, be it without a change. Sources without a connection never call it. */
  heard?(kind: ResourceKind): void;
  /** The origin cannot be asked for this kind at the moment: why, in a few words. Over with the next {@linkcode ResourceEventHandler.heard}. */
  failed?(kind: ResourceKind, reason: string): void;
  /** The origin does not let objects of this kind be read: why, in its words. It may deliver some later all the same. */
  refused?(kind: ResourceKind, reason: string): void;
  /**
   * Objects that were delivered are those of a snapshot, or would be if it were not too old; null: nothing is missing any more.
   * Only sources that keep one call it.
   */
  restored?(state: RestoredState | null): void;
}

/** Kinds of objects that a snapshot is served for, or is too old for. */
export interface RestoredState {
  /** When the snapshot was written, in milliseconds since the epoch. */
  readonly savedAtMs: number;
  /** Kinds that the origin has not listed yet. */
  readonly kinds: readonly ResourceKind[];
  /** When it was or becomes too old, in milliseconds since the epoch; null: never. */
  readonly expiresAtMs: number | null;
  /** False: it was too old when it was needed. */
  readonly isServed: boolean;
}

/** Something that lists and watches objects. */
export interface Source {
  /** `files /etc/kproxy/manifests` or `https://10.0.0.1:6443`: for logs. */
  readonly name: string;
  /**
   * Delivers the first lists, then changes, until `signal` aborts; then resolves.
   * Connection trouble is retried inside, and logged; it rejects only when going on is pointless (bad credentials file, no such path at start).
   */
  run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void>;
  /**
   * Objects that it delivered and that are in force, without a copy: each as it is when taken. Events may come while a caller takes
   * them; of an object that comes twice the later one counts. Absent: it keeps nothing.
   */
  objects?(): Iterable<ApiObject>;
  /** Current refusals, each with its present reason. Absent: the source does not know them. */
  refusals?(): Iterable<Rejection>;
}

/**
 * Runs the parts of a source side by side until `signal` aborts. If one of them gives up, so do the others.
 *
 * @throws what the first of the parts that failed threw
 */
export async function runTogether(
  parts: readonly ((until: AbortSignal) => Promise<void>)[],
  signal: AbortSignal,
): Promise<void> {
  const failure = new AbortController();
  const until = AbortSignal.any([signal, failure.signal]);
  const runs = parts.map(async (part) => {
    try {
      await part(until);
    } catch (error) {
      failure.abort();
      throw error;
    }
  });
  const failed = (await Promise.allSettled(runs)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

/** True if both values of plain data are equal in every field and order. */
export function sameObject(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one)) {
    return Array.isArray(other) && one.length === other.length &&
      one.every((item, index) => sameObject(item, other[index]));
  }
  if (Array.isArray(other)) return false;
  const [mine, others] = [one, other] as [PlainObject, PlainObject];
  const keys = Object.keys(mine);
  if (keys.length !== Object.keys(others).length) return false;
  for (const key of keys) if (!(key in others) || !sameObject(mine[key], others[key])) return false;
  return true;
}

type PlainObject = Readonly<Record<string, unknown>>;

/** The event that leads from `old` to `object`, if they differ. */
export function eventsBetween(old: ApiObject | undefined, object: ApiObject | undefined): SourceEvent[] {
  if (object === undefined) return old === undefined ? [] : [{ type: "delete", old }];
  if (old === undefined) return [{ type: "add", object }];
  return sameObject(old, object) ? [] : [{ type: "update", old, object }];
}

/** `Service shop/web`. */
export function identityOf(object: ApiObject): string {
  return "namespace" in object
    ? `${object.kind} ${object.namespace}/${object.name}`
    : `${object.kind} ${object.name}`;
}
