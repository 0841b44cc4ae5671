/**
 * Takes the events of a source, hands them to the family they concern, and asks for syncs once the first lists are in.
 *
 * @module
 */
import type { ChangeTracker } from "../model/change_tracker.ts";
import type {
  ApiObject,
  EndpointSlice,
  IpFamily,
  NodeObject,
  Service,
  ServiceCidr,
} from "../model/objects.ts";
import { serviceNetworks } from "../model/cluster_networks.ts";
import type {
  Rejection,
  ResourceEventHandler,
  ResourceKind,
  RestoredState,
  SourceEvent,
} from "../source/source.ts";

/** One IP family as the event handlers see it. */
export interface HandledFamily {
  readonly family: IpFamily;
  readonly tracker: ChangeTracker;
  /** Asks for a sync; several requests may become one. */
  requestSync(): void;
}

/** Observes every event that a family took, needed or not. */
export interface ChangeObserver {
  /** A Service; `pendingServices` is how many now wait for a sync of the family. */
  service(family: IpFamily, pendingServices: number): void;
  /** An EndpointSlice of the family; `pending` if it needs a sync. */
  endpointSlice(family: IpFamily, pending: boolean): void;
}

/** Dependencies of {@linkcode EventHandlers}. */
export interface EventHandlersOptions {
  readonly runners: readonly HandledFamily[];
  /** Name of the own Node; others are ignored. */
  readonly nodeName: string;
  /** Called when the own Node changed, or is gone. */
  readonly onNode: (node: NodeObject | undefined) => void;
  /** A Service was added or changed, of whatever family. */
  readonly onService?: (service: Service) => void;
  /** The networks of ServiceCIDRs changed; yields the families whose rules that changes. Absent: they do not matter. */
  readonly onServiceCidrs?: ((networks: readonly string[]) => readonly IpFamily[]) | undefined;
  readonly onRejected: (rejection: Rejection) => void;
  readonly changes?: ChangeObserver;
  /** Called at a sign of life of the source. */
  readonly onHeard?: (kind: ResourceKind) => void;
  /** Called with the reason why the source cannot get this kind at the moment. */
  readonly onFailed?: (kind: ResourceKind, reason: string) => void;
  /** Called when the source serves from a snapshot; null: no longer. */
  readonly onRestored?: (state: RestoredState | null) => void;
}

/**
 * The handler of the source. Nothing is programmed before the first lists of Services and EndpointSlices are complete,
 * because a half list would look like deletions; `openGate` adds a condition of the caller's own (the node's facts).
 */
export class EventHandlers implements ResourceEventHandler {
  readonly #options: EventHandlersOptions;
  readonly #synced = new Set<ResourceKind>();
  /** Kind → why it cannot be read. */
  readonly #refusals = new Map<ResourceKind, string>();
  #gateOpen = false;
  #onSynced: ((kind: ResourceKind) => void)[] = [];
  readonly #serviceCidrs = new Map<string, ServiceCidr>();
  #serviceCidrsChanged = false;

  constructor(options: EventHandlersOptions) {
    this.#options = options;
  }

  get wantsServiceCidrs(): boolean {
    return this.#options.onServiceCidrs !== undefined;
  }

  /** True once syncs may run. */
  get initialized(): boolean {
    return this.#gateOpen && this.#synced.has("services") && this.#synced.has("endpointslices");
  }

  /** Resolves when the first list of `kind` has been delivered. */
  whenSynced(kind: ResourceKind): Promise<void> {
    if (this.#synced.has(kind)) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onSynced.push((arrived) => {
        if (arrived === kind) resolve();
      });
    });
  }

  /** Why the source may not read this kind; null if it may, or has not tried. */
  refusal(kind: ResourceKind): string | null {
    return this.#refusals.get(kind) ?? null;
  }

  /** Lets syncs begin as soon as the first lists are in. */
  openGate(): void {
    if (this.#gateOpen) return;
    this.#gateOpen = true;
    this.#requestAll();
  }

  events(batch: readonly SourceEvent[]): void {
    const wasInitialized = this.initialized;
    const changed = new Set<HandledFamily>();
    for (const event of batch) this.#take(event, changed);
    this.#reportServiceCidrs(changed);
    if (!wasInitialized) this.#requestAll();
    else for (const runner of changed) runner.requestSync();
  }

  refused(kind: ResourceKind, reason: string): void {
    this.#refusals.set(kind, reason);
  }

  heard(kind: ResourceKind): void {
    this.#refusals.delete(kind);
    this.#options.onHeard?.(kind);
  }

  failed(kind: ResourceKind, reason: string): void {
    this.#options.onFailed?.(kind, reason);
  }

  restored(state: RestoredState | null): void {
    this.#options.onRestored?.(state);
  }

  rejected(rejection: Rejection): void {
    this.#options.onRejected(rejection);
  }

  #requestAll(): void {
    if (!this.initialized) return;
    for (const runner of this.#options.runners) runner.requestSync();
  }

  #take(event: SourceEvent, changed: Set<HandledFamily>): void {
    if (event.type === "synced") {
      this.#synced.add(event.kind);
      for (const listener of this.#onSynced) listener(event.kind);
      return;
    }
    const old = event.type === "add" ? undefined : event.old;
    const current = event.type === "delete" ? undefined : event.object;
    this.#dispatch(old, current, changed);
  }

  /** Both objects of an event are of one kind. */
  #dispatch(old: ApiObject | undefined, current: ApiObject | undefined, changed: Set<HandledFamily>): void {
    type Both<T> = [old: T | undefined, current: T | undefined];
    const object = current ?? old;
    switch (object?.kind) {
      case "Service":
        return this.#takeService(...[old, current] as Both<Service>, changed);
      case "EndpointSlice":
        return this.#takeSlice(object, current === undefined, changed);
      case "ServiceCIDR":
        return this.#takeServiceCidr(...[old, current] as Both<ServiceCidr>);
      case "Node":
        if (object.name === this.#options.nodeName) this.#options.onNode(current as NodeObject | undefined);
    }
  }

  #takeServiceCidr(old: ServiceCidr | undefined, current: ServiceCidr | undefined): void {
    if (current !== undefined) this.#serviceCidrs.set(current.name, current);
    else if (old !== undefined) this.#serviceCidrs.delete(old.name);
    this.#serviceCidrsChanged = true;
  }

  #reportServiceCidrs(changed: Set<HandledFamily>): void {
    const { runners, onServiceCidrs } = this.#options;
    if (!this.#serviceCidrsChanged) return;
    this.#serviceCidrsChanged = false;
    const families = onServiceCidrs?.(serviceNetworks(this.#serviceCidrs.values())) ?? [];
    for (const runner of runners) if (families.includes(runner.family)) changed.add(runner);
  }

  #takeService(old: Service | undefined, current: Service | undefined, changed: Set<HandledFamily>): void {
    if (current !== undefined) this.#options.onService?.(current);
    for (const runner of this.#options.runners) {
      if (runner.tracker.updateService(old, current)) changed.add(runner);
      this.#options.changes?.service(runner.family, runner.tracker.pendingServiceCount);
    }
  }

  #takeSlice(slice: EndpointSlice, isGone: boolean, changed: Set<HandledFamily>): void {
    // Both families get every slice: only so does a tracker notice one that changed its address type.
    for (const runner of this.#options.runners) {
      const pending = runner.tracker.updateEndpointSlice(slice, isGone);
      if (pending) changed.add(runner);
      if (slice.addressType === runner.family) this.#options.changes?.endpointSlice(runner.family, pending);
    }
  }
}
