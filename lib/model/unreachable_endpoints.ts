/**
 * Endpoints whose addresses no pod has, such as loopback or multicast addresses: traffic is not sent there, because it would reach the
 * node itself or its link. An API server refuses most of them, but not all, and not every source of objects is one.
 *
 * @module
 */
import type { NamespacedName } from "./objects.ts";

/** An endpoint that is left out. */
export interface UnreachableEndpoint {
  /** The Service that it belongs to. */
  readonly service: NamespacedName;
  /** E.g. `239.1.1.1 of EndpointSlice shop/web-1`. */
  readonly endpoint: string;
  /** E.g. `it is a multicast address`. */
  readonly reason: string;
}

/** Callbacks of {@linkcode UnreachableEndpoints}. */
export interface UnreachableEndpointsOptions {
  /** Called once for each; beyond `maxReported` of a Service at once, with the number of further ones. */
  readonly onFound?: (found: UnreachableEndpoint) => void;
  /** Called for each endpoint that is no longer listed, with the same limit. */
  readonly onGone?: (gone: Omit<UnreachableEndpoint, "reason">) => void;
  /** Called with their number whenever it changes. */
  readonly onCount?: (count: number) => void;
  /** Most endpoints of a Service reported by name at once. @default {10} */
  readonly maxReported?: number;
}

/** Default of `maxReported`: a Service may have thousands of addresses, each with hundreds of ports. */
const MAX_REPORTED = 10;
const NONE: ReadonlyMap<string, string> = new Map();

/** Unreachable endpoints of one IP family, by Service; only of Services that are served, as others get no traffic. */
export class UnreachableEndpoints {
  readonly #options: UnreachableEndpointsOptions;
  /** Service → endpoint → reason; nearly always none. */
  readonly #reported = new Map<NamespacedName, ReadonlyMap<string, string>>();
  #count = 0;

  constructor(options: UnreachableEndpointsOptions = {}) {
    this.#options = options;
  }

  /** Sets the unreachable endpoints of a Service, and reports the difference. */
  report(service: NamespacedName, now: ReadonlyMap<string, string>): void {
    const before = this.#reported.get(service) ?? NONE;
    if (before.size + now.size === 0) return;
    if (now.size > 0) this.#reported.set(service, now);
    else this.#reported.delete(service);
    const { onFound, onGone, onCount, maxReported } = this.#options;
    reportDifference(before, now, {
      what: "endpoints",
      maxReported,
      onNew: (endpoint, reason) => onFound?.({ service, endpoint, reason }),
      onGone: (endpoint) => onGone?.({ service, endpoint }),
    });
    if (now.size === before.size) return;
    this.#count += now.size - before.size;
    onCount?.(this.#count);
  }
}

/** Reports new and gone entries by name, up to `maxReported` of each at once; then the number of further ones. */
export function reportDifference(
  before: ReadonlyMap<string, string>,
  now: ReadonlyMap<string, string>,
  { what, maxReported = MAX_REPORTED, onNew, onGone }: {
    readonly what: string;
    readonly maxReported: number | undefined;
    readonly onNew: (name: string, reason: string) => void;
    readonly onGone: (name: string) => void;
  },
): void {
  const found = [...now].filter(([name]) => !before.has(name));
  for (const [name, reason] of found.slice(0, maxReported)) onNew(name, reason);
  if (found.length > maxReported) {
    onNew(`${found.length - maxReported} more ${what}`, "for the same kinds of reasons");
  }
  const gone = [...before.keys()].filter((name) => !now.has(name));
  for (const name of gone.slice(0, maxReported)) onGone(name);
  if (gone.length > maxReported) onGone(`${gone.length - maxReported} more ${what}`);
}
