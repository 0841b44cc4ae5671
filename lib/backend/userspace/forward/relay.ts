/**
 * What the forwarders of TCP and UDP share: who hears of what they do, and how much they may take.
 *
 * @module
 */
import {
  ConnectionPool,
  type ConnectionPoolOptions,
  type PooledConnection,
} from "../../../kernel/connection_pool.ts";
import type { CopyBuffers } from "./copy_buffers.ts";
import type { PortalEndpoint, PortalProtocol } from "../plan/ruleset.ts";

/** Why a client was not served. */
export type RelayRefusal = "descriptors" | "limit" | "no endpoint" | "no answer" | "not redirected";

/** Hears of everything that is forwarded. */
export interface RelayObserver {
  opened(protocol: PortalProtocol): void;
  closed(protocol: PortalProtocol): void;
  refused(protocol: PortalProtocol, reason: RelayRefusal): void;
  /** A client with more sessions than others lost one to another client. */
  evicted(protocol: PortalProtocol): void;
  /** An endpoint took no connection. */
  dialFailed(protocol: PortalProtocol): void;
  /** Bytes of a client (`in`) or to it (`out`). */
  forwarded(protocol: PortalProtocol, direction: "in" | "out", bytes: number): void;
}

/** What a portal is given of the process. */
export interface RelayContext {
  readonly observer: RelayObserver;
  readonly sessions: Sessions;
  readonly buffers: CopyBuffers;
  /** Told what one portal cannot do, such as accept. */
  readonly onProblem: (problem: string, error: unknown) => void;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  readonly random: () => number;
  /** Milliseconds after which a UDP session without packets ends. */
  readonly udpIdleMs: number;
}

/** A port of kproxy's own at work. */
export interface OpenPortal {
  readonly port: number;
  /** Takes endpoints and seconds of affinity over. */
  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void;
  /** Takes no more clients; those that are there are served to their end. Resolves when others may have the port. */
  close(): Promise<void>;
}

/** No port could be had. */
export class NoPortError extends Error {
  /** @param isDenied true if it is a lack of rights, as for ports below 1024 */
  constructor(message: string, readonly isDenied: boolean) {
    super(message);
    this.name = "NoPortError";
  }
}

/**
 * How many sessions there may be at a time, however many descriptors are left: memory is for more than strangers. A client of UDP has a
 * socket whose buffer takes 64 KiB.
 */
export const MOST_SESSIONS: Readonly<Record<PortalProtocol, number>> = { TCP: 32_768, UDP: 4_096 };

/** How often the log names a client that takes more than its share. */
const TELL_AGAIN_MS = 60_000;

/**
 * The sessions of all portals of a protocol: connections of TCP, clients of UDP. When there is no room, the client with the most of them
 * gives up the one that was silent for longest, for a client that has at least two fewer; whoever has as many is refused.
 */
export class Sessions {
  readonly #pool: ConnectionPool;
  readonly #lane: { readonly server: PortalProtocol; readonly most: number };

  /**
   * @param pool of both protocols, which share the descriptors
   * @param most Infinity for as many as there are descriptors
   */
  constructor(pool: ConnectionPool, protocol: PortalProtocol, most: number) {
    this.#pool = pool;
    this.#lane = { server: protocol, most };
  }

  /** Null if there is room for one more, until it leaves; else what is lacking, and it is closed. */
  admit(session: PooledConnection): RelayRefusal | null {
    if (this.#pool.admit(session, this.#lane) !== "refused") return null;
    return this.#pool.count(this.#lane) >= this.#lane.most ? "limit" : "descriptors";
  }

  leave(session: PooledConnection): void {
    this.#pool.leave(session);
  }

  /** The system has no descriptor left, whatever was assured. */
  exhausted(): void {
    this.#pool.exhausted();
  }
}

/** A pool for the sessions of both protocols. `onGreed` is told now and then who took more than its share. */
export function sessionPool(
  observer: RelayObserver,
  onGreed: (message: string) => void,
  { allowance, nowMs }: Pick<ConnectionPoolOptions, "allowance" | "nowMs"> = {},
): ConnectionPool {
  let toldMs = Number.NEGATIVE_INFINITY;
  const pool = new ConnectionPool({
    most: Infinity,
    least: 0,
    endsWaiting: false,
    ...allowance === undefined ? {} : { allowance },
    ...nowMs === undefined ? {} : { nowMs },
    observer: {
      open: () => {},
      failed: () => {},
      closed: (protocol, reason, client) => {
        if (reason === "evicted") observer.evicted(protocol as PortalProtocol);
        if (pool.nowMs() - toldMs < TELL_AGAIN_MS) return;
        toldMs = pool.nowMs();
        onGreed(`${client} has ${pool.countOf(client)} of ${pool.count()}`);
      },
    },
  });
  return pool;
}
