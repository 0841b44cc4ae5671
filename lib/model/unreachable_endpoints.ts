/**
 * Endpoints whose addresses no pod has, such as loopback or multicast addresses: traffic is not sent there, because it would reach the
 * node itself or its link. An API server refuses most of them, but not all, and not every source of objects is one.
 *
 * @module
 */
import type { NamespacedName } from "./objects.ts";

/** An endpoint that is left out. */
export interface UnreachableEndpoint {
  /** Whose endpoint it is. */
  readonly service: NamespacedName;
  /** E.g. `239.1.1.1 of EndpointSlice shop/web-1`. */
  readonly endpoint: string;
  /** E.g. `it is a multicast address`. */
  readonly reason: string;
}

/** Callbacks. */
export interface UnreachableEndpointsOptions {
  /** Called once for each; with more than `maxReported` of a Service at once, with how many more there are. */
  readonly onFound?: (found: UnreachableEndpoint) => void;
  /** Called for each that is no endpoint any more, as many at once. */
  readonly onGone?: (gone: Omit<UnreachableEndpoint, "reason">) => void;
  /** Called with their number whenever it changes. */
  readonly onCount?: (count: number) => void;
  /** How many endpoints of a Service are named at once. @default {10} */
  readonly maxReported?: number;
}

const MAX_REPORTED = 10;
const NONE: ReadonlyMap<string, string> = new Map();

/** Those of one IP family, by Service. */
export class UnreachableEndpoints {
  readonly #options: UnreachableEndpointsOptions;
  /** Service → endpoint → reason, whether or not the proxy serves it; nearly always none. */
  readonly #declared = new Map<NamespacedName, ReadonlyMap<string, string>>();
  /** What of it was reported: of Services that are served. */
  readonly #reported = new Map<NamespacedName, ReadonlyMap<string, string>>();
  #count = 0;

  constructor(options: UnreachableEndpointsOptions = {}) {
    this.#options = options;
  }

  /** What the slices of a Service hold of them from now on. */
  declare(service: NamespacedName, endpoints: ReadonlyMap<string, string>): void {
    if (endpoints.size > 0) this.#declared.set(service, endpoints);
    else this.#declared.delete(service);
  }

  /** To be called when the slices of a Service changed, or whether it is served: traffic to others goes nowhere anyway. */
  report(service: NamespacedName, isServed: boolean): void {
    const before = this.#reported.get(service) ?? NONE;
    const now = isServed ? this.#declared.get(service) ?? NONE : NONE;
    if (before === now) return;
    if (now.size > 0) this.#reported.set(service, now);
    else this.#reported.delete(service);
    const { onFound, onGone, onCount, maxReported = MAX_REPORTED } = this.#options;
    const found = [...now].filter(([endpoint]) => !before.has(endpoint));
    for (const [endpoint, reason] of found.slice(0, maxReported)) onFound?.({ service, endpoint, reason });
    if (found.length > maxReported) {
      const reason = "for the same kinds of reasons";
      onFound?.({ service, endpoint: `${found.length - maxReported} more endpoints`, reason });
    }
    const gone = [...before.keys()].filter((endpoint) => !now.has(endpoint));
    for (const endpoint of gone.slice(0, maxReported)) onGone?.({ service, endpoint });
    if (gone.length > maxReported) {
      onGone?.({ service, endpoint: `${gone.length - maxReported} more endpoints` });
    }
    if (now.size === before.size) return;
    this.#count += now.size - before.size;
    onCount?.(this.#count);
  }
}
