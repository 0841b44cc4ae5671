/**
 * Two sources as one, the first winning per object.
 *
 * @module
 */
import type { ApiObject } from "../model/objects.ts";
import {
  eventsBetween,
  identityOf,
  type Rejection,
  type ResourceEventHandler,
  type ResourceKind,
  runTogether,
  type Source,
  type SourceEvent,
} from "./source.ts";

type Side = 0 | 1;
type Sides<T> = [T, T];

/**
 * Delivers the objects of both sources. Of two with the same kind and name that of `first` counts, also in its later
 * changes; once it is gone, that of `second` does. A kind is synced once it is in both.
 */
export class CombinedSource implements Source {
  readonly name: string;
  readonly #sources: readonly [Source, Source];
  readonly #report: (message: string) => void;
  readonly #objects = new Map<string, Sides<ApiObject | undefined>>();
  readonly #synced = new Map<ResourceKind, Set<Side>>();
  readonly #overridden = new Set<string>();

  /** `report` gets a line for each object of `second` that one of `first` overrides, once per override. */
  constructor(first: Source, second: Source, report: (message: string) => void) {
    this.name = `${first.name} before ${second.name}`;
    this.#sources = [first, second];
    this.#report = report;
  }

  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    // If one gives up, so must the other: half of the objects would look like the rest having been deleted.
    const parts = this.#sources.map((source, side) => (until: AbortSignal) =>
      source.run(this.#handlerOf(side as Side, handler), until)
    );
    await runTogether(parts, signal);
  }

  *objects(): Generator<ApiObject> {
    for (const [first, second] of this.#objects.values()) {
      const object = first ?? second;
      if (object !== undefined) yield object;
    }
  }

  *refusals(): Generator<Rejection> {
    for (const source of this.#sources) yield* source.refusals?.() ?? [];
  }

  #handlerOf(side: Side, handler: ResourceEventHandler): ResourceEventHandler {
    return {
      wantsServiceCidrs: handler.wantsServiceCidrs === true,
      events: (batch) => {
        const merged = batch.flatMap((event) =>
          event.type === "synced" ? this.#sync(side, event) : this.#change(side, event)
        );
        if (merged.length > 0) handler.events(merged);
      },
      rejected: (rejection) => handler.rejected(rejection),
      heard: (kind) => handler.heard?.(kind),
      failed: (kind, reason) => handler.failed?.(kind, reason),
      refused: (kind, reason) => handler.refused?.(kind, reason),
      restored: (state) => handler.restored?.(state),
    };
  }

  #sync(side: Side, event: Extract<SourceEvent, { type: "synced" }>): SourceEvent[] {
    const sides = this.#synced.get(event.kind) ?? new Set();
    this.#synced.set(event.kind, sides.add(side));
    return sides.size === 2 ? [event] : [];
  }

  #change(side: Side, event: Exclude<SourceEvent, { type: "synced" }>): SourceEvent[] {
    const object = event.type === "delete" ? undefined : event.object;
    const identity = identityOf(object ?? (event as { old: ApiObject }).old);
    const sides = this.#objects.get(identity) ?? [undefined, undefined];
    const before = sides[0] ?? sides[1];
    sides[side] = object;
    if (sides[0] === undefined && sides[1] === undefined) this.#objects.delete(identity);
    else this.#objects.set(identity, sides);
    this.#noteOverride(identity, sides[0] !== undefined && sides[1] !== undefined);
    return eventsBetween(before, sides[0] ?? sides[1]);
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
