/**
 * Two sources as one, the first winning per object.
 *
 * @module
 */
import type { ApiObject, EndpointSlice, NamespacedName } from "../model/objects.ts";
import { toEnd } from "../text/steps.ts";
import { EndpointsMerger } from "./decode/v1_endpoints.ts";
import {
  eventsBetween,
  identityOf,
  nettingEvents,
  type Rejection,
  type ResourceEventHandler,
  type ResourceKind,
  type Source,
  type SourceEvent,
} from "./source.ts";

/** How slices that stand for v1 Endpoints are named: see `decodeEndpoints`. */
const FROM_ENDPOINTS = "endpoints/";

type Side = 0 | 1;
type Sides<T> = [T, T];

/**
 * Delivers the objects of both sources. Of two with the same kind and name that of `first` counts, also in its later
 * changes; once it is gone, that of `second` does. A Service's EndpointSlices of either source count before v1 Endpoints
 * of either. A kind is synced once it is in both.
 */
export class CombinedSource implements Source {
  readonly name: string;
  readonly #sources: readonly [Source, Source];
  readonly #report: (message: string) => void;
  readonly #objects = new Map<string, Sides<ApiObject | undefined>>();
  /** Slices that stand for Endpoints, by Service, then by name: an Endpoints object wins as a whole. */
  readonly #endpoints = new Map<NamespacedName, Sides<Map<string, EndpointSlice>>>();
  readonly #merger = new EndpointsMerger();
  readonly #synced = new Map<ResourceKind, Set<Side>>();
  readonly #overridden = new Set<string>();

  /** `report` is told, once each time it begins, that an object of `second` is not used. */
  constructor(first: Source, second: Source, report: (message: string) => void) {
    this.name = `${first.name} before ${second.name}`;
    this.#sources = [first, second];
    this.#report = report;
  }

  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    // If one gives up, so must the other: half of the objects would look like the rest having been deleted.
    const failure = new AbortController();
    const either = AbortSignal.any([signal, failure.signal]);
    const runs = this.#sources.map(async (source, side) => {
      try {
        await source.run(this.#handlerOf(side as Side, handler), either);
      } catch (error) {
        failure.abort();
        throw error;
      }
    });
    const failed = (await Promise.allSettled(runs)).find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  *objects(): Generator<ApiObject> {
    for (const [first, second] of this.#objects.values()) {
      const object = first ?? second;
      if (object === undefined) continue;
      if (object.kind !== "EndpointSlice" || this.#merger.isUsed(object)) yield object;
    }
    for (const [first, second] of this.#endpoints.values()) {
      for (const slice of (first.size > 0 ? first : second).values()) {
        if (this.#merger.isUsed(slice)) yield slice;
      }
    }
  }

  *refusals(): Generator<Rejection> {
    for (const source of this.#sources) yield* source.refusals?.() ?? [];
  }

  #handlerOf(side: Side, handler: ResourceEventHandler): ResourceEventHandler {
    return {
      wantsServiceCidrs: handler.wantsServiceCidrs === true,
      events: (batch) => {
        const merged = this.#merge(side, batch);
        if (merged.length > 0) handler.events(merged);
      },
      rejected: (rejection) => handler.rejected(rejection),
      heard: (kind) => handler.heard?.(kind),
      failed: (kind, reason) => handler.failed?.(kind, reason),
      refused: (kind, reason) => handler.refused?.(kind, reason),
      restored: (state) => handler.restored?.(state),
    };
  }

  #merge(side: Side, batch: readonly SourceEvent[]): SourceEvent[] {
    const events: SourceEvent[] = [];
    const synced: SourceEvent[] = [];
    for (const event of batch) {
      if (event.type === "synced") {
        const sides = this.#synced.get(event.kind) ?? new Set();
        this.#synced.set(event.kind, sides.add(side));
        if (sides.size === 2) synced.push(event);
      } else {
        events.push(...this.#change(side, event));
      }
    }
    return [...toEnd(nettingEvents(events)), ...synced];
  }

  #change(side: Side, event: Exclude<SourceEvent, { type: "synced" }>): SourceEvent[] {
    const object = event.type === "delete" ? undefined : event.object;
    const known = object ?? (event as { old: ApiObject }).old;
    if (known.kind === "EndpointSlice" && known.name.startsWith(FROM_ENDPOINTS)) {
      return this.#changeEndpoints(side, known, object !== undefined);
    }
    const identity = identityOf(known);
    const sides = this.#objects.get(identity) ?? [undefined, undefined];
    const before = sides[0] ?? sides[1];
    sides[side] = object;
    if (sides[0] === undefined && sides[1] === undefined) this.#objects.delete(identity);
    else this.#objects.set(identity, sides);
    this.#noteOverride(identity, sides[0] !== undefined && sides[1] !== undefined);
    const after = sides[0] ?? sides[1];
    if (known.kind !== "EndpointSlice") return eventsBetween(before, after);
    return this.#merger.slice(before as EndpointSlice | undefined, after as EndpointSlice | undefined);
  }

  #changeEndpoints(side: Side, slice: EndpointSlice, there: boolean): SourceEvent[] {
    const service = `${slice.namespace}/${slice.serviceName}`;
    const sides = this.#endpoints.get(service) ?? [new Map(), new Map()];
    if (there) sides[side].set(slice.name, slice);
    else sides[side].delete(slice.name);
    const [first, second] = sides;
    if (first.size + second.size === 0) this.#endpoints.delete(service);
    else this.#endpoints.set(service, sides);
    this.#noteOverride(`Endpoints ${service}`, first.size > 0 && second.size > 0);
    return this.#merger.endpoints(service, [...(first.size > 0 ? first : second).values()]);
  }

  #noteOverride(identity: string, overridden: boolean): void {
    if (!overridden) {
      this.#overridden.delete(identity);
    } else if (!this.#overridden.has(identity)) {
      this.#overridden.add(identity);
      this.#report(
        `${identity} of ${this.#sources[1].name} is not used: ${this.#sources[0].name} has it too`,
      );
    }
  }
}
