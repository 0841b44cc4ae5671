/**
 * The informer: a source's events, passed to the handlers of each kind of objects.
 *
 * @module
 */
import type { ApiObject, EndpointSlice, NodeObject, Service, ServiceCidr } from "../model/objects.ts";
import { type Rejection, RESOURCE_OF, type ResourceKind, type Source, type SourceEvent } from "./source.ts";

/** Handlers for objects of one kind. Calls are synchronous and in order; handlers that are left out are not called. */
export interface ObjectHandlers<T extends ApiObject> {
  /** An object is new, also at the beginning, when all that exist are. */
  readonly add?: (object: T) => void;
  /** An object differs from what it was. */
  readonly update?: (old: T, object: T) => void;
  /** An object is gone, or no longer one that a proxy reads. */
  readonly delete?: (old: T) => void;
  /** All objects that existed at the beginning have been added. Called once. */
  readonly synced?: () => void;
}

/** Handlers for the events of a source. */
export interface InformerHandlers {
  /** Services. */
  readonly services?: ObjectHandlers<Service>;
  /** EndpointSlices, those that stand for v1 Endpoints among them. */
  readonly endpointSlices?: ObjectHandlers<EndpointSlice>;
  /** Nodes: from an API server only the named one. */
  readonly nodes?: ObjectHandlers<NodeObject>;
  /** ServiceCIDRs: requested only if this is given; manifests have none. */
  readonly serviceCidrs?: ObjectHandlers<ServiceCidr>;
  /** An object, or a whole file, is refused; the others go on, and its last good version stays in force. */
  readonly rejected: (rejection: Rejection) => void;
  /** The origin cannot be asked for objects of this kind now; it is tried again. */
  readonly failed?: (kind: ResourceKind, reason: string) => void;
  /** The origin does not let objects of this kind be read; it is asked again now and then. */
  readonly refused?: (kind: ResourceKind, reason: string) => void;
  /** The origin gave a sign of life for objects of this kind, be it without a change. */
  readonly heard?: (kind: ResourceKind) => void;
}

/**
 * Calls handlers for all objects of a source, then for every change, until `signal` aborts.
 *
 * A handler that throws ends it: no handler is called any more, and the promise is rejected with what was thrown. A handler that
 * returns a promise is not waited for.
 *
 * @throws whatever a handler threw, or why the source cannot go on, such as a {@linkcode ConfigError} of wrong credentials
 */
export async function inform(source: Source, handlers: InformerHandlers, signal: AbortSignal): Promise<void> {
  const failure = new AbortController();
  const ending = AbortSignal.any([signal, failure.signal]);
  const guarded = (work: () => void): void => {
    if (ending.aborted) return;
    // A source goes on after whatever its handler does, so what a handler throws would be lost there.
    try {
      work();
    } catch (error) {
      failure.abort(error);
    }
  };
  await source.run({
    wantsServiceCidrs: handlers.serviceCidrs !== undefined,
    events: (batch) => {
      for (const event of batch) guarded(() => hand(event, handlers));
    },
    rejected: (rejection) => guarded(() => handlers.rejected(rejection)),
    failed: (kind, reason) => guarded(() => handlers.failed?.(kind, reason)),
    refused: (kind, reason) => guarded(() => handlers.refused?.(kind, reason)),
    heard: (kind) => guarded(() => handlers.heard?.(kind)),
  }, ending);
  if (failure.signal.aborted) throw failure.signal.reason;
}

const HANDLERS_OF = {
  services: "services",
  endpointslices: "endpointSlices",
  nodes: "nodes",
  servicecidrs: "serviceCidrs",
} as const satisfies Record<ResourceKind, keyof InformerHandlers>;

function hand(event: SourceEvent, handlers: InformerHandlers): void {
  if (event.type === "synced") return handlers[HANDLERS_OF[event.kind]]?.synced?.();
  const { kind } = event.type === "delete" ? event.old : event.object;
  // The old and the new object of an event are of this kind, too.
  const ofKind = handlers[HANDLERS_OF[RESOURCE_OF[kind]]] as ObjectHandlers<ApiObject> | undefined;
  if (event.type === "add") ofKind?.add?.(event.object);
  else if (event.type === "delete") ofKind?.delete?.(event.old);
  else ofKind?.update?.(event.old, event.object);
}
