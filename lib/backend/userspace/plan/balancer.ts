/**
 * Picks the endpoint for a client: one after the other, or the one it had before.
 *
 * @module
 */
import type { PortalEndpoint } from "./plan.ts";

/** Options of a {@linkcode Balancer}. */
export interface BalancerOptions {
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
  /** How many clients are remembered; the ones not seen for longest go. @default {65536} */
  readonly mostClients?: number;
}

const MOST_CLIENTS = 65_536;

interface Affinity {
  readonly endpoint: PortalEndpoint;
  readonly usedMs: number;
}

const keyOf = ({ ip, port }: PortalEndpoint): string => `${ip} ${port}`;

/** Balancer of the endpoints of one portal. */
export class Balancer {
  readonly #options: BalancerOptions;
  #endpoints: readonly PortalEndpoint[] = [];
  #keys: ReadonlySet<string> = new Set();
  #next = 0;
  #stickyMs = 0;
  /** Clients with affinity; the one not seen for longest comes first. */
  readonly #clients = new Map<string, Affinity>();

  constructor(options: BalancerOptions) {
    this.#options = options;
  }

  /**
   * Takes endpoints and seconds of affinity (0 without) over. If the endpoints are others than before they are shuffled, so
   * that not all nodes begin with the same one; clients keep theirs as long as it is among them.
   */
  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void {
    this.#stickyMs = stickySeconds * 1000;
    if (stickySeconds === 0) this.#clients.clear();
    const keys = new Set(endpoints.map(keyOf));
    if (keys.size === this.#keys.size && keys.isSubsetOf(this.#keys)) return;
    this.#keys = keys;
    this.#endpoints = this.#shuffled(endpoints);
    this.#next = 0;
    for (const [client, { endpoint }] of this.#clients) {
      if (!keys.has(keyOf(endpoint))) this.#clients.delete(client);
    }
  }

  /** True if there is an endpoint of this address and port. */
  has(endpoint: PortalEndpoint): boolean {
    return this.#keys.has(keyOf(endpoint));
  }

  /**
   * The endpoint for a client; null if there is none.
   *
   * @param isRetry true: the client's endpoint does not answer, another one takes its place, also for next time
   */
  pick(client: string, isRetry = false): PortalEndpoint | null {
    if (this.#endpoints.length === 0) return null;
    if (this.#stickyMs === 0) return this.#following();
    const nowMs = this.#options.nowMs();
    const known = isRetry ? undefined : this.#clients.get(client);
    // As long as whole seconds since the last use are fewer, as in kube-proxy.
    const isFresh = known !== undefined && nowMs - known.usedMs < this.#stickyMs;
    const endpoint = isFresh ? known.endpoint : this.#following();
    this.#clients.delete(client);
    this.#clients.set(client, { endpoint, usedMs: nowMs });
    this.#forget(nowMs);
    return endpoint;
  }

  #following(): PortalEndpoint {
    const endpoint = this.#endpoints[this.#next]!;
    this.#next = (this.#next + 1) % this.#endpoints.length;
    return endpoint;
  }

  /** Forgets expired and surplus clients, which come first. */
  #forget(nowMs: number): void {
    const most = this.#options.mostClients ?? MOST_CLIENTS;
    for (const [client, { usedMs }] of this.#clients) {
      if (this.#clients.size <= most && nowMs - usedMs < this.#stickyMs) return;
      this.#clients.delete(client);
    }
  }

  #shuffled(endpoints: readonly PortalEndpoint[]): readonly PortalEndpoint[] {
    const order = [...endpoints];
    for (let at = order.length - 1; at > 0; at--) {
      const other = Math.floor(this.#options.random() * (at + 1));
      [order[at], order[other]] = [order[other]!, order[at]!];
    }
    return order;
  }
}
