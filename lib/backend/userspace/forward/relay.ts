/**
 * Common parts of the forwarders of TCP and UDP: sessions, their limits, and their counts.
 *
 * @module
 */
import {
  clientOf,
  ConnectionPool,
  type ConnectionPoolOptions,
  type PooledConnection,
} from "../../../kernel/connection_pool.ts";
import type { PortalEndpoint, PortalProtocol } from "../plan/plan.ts";
import type { CopyBuffers } from "./tcp_portal.ts";

/** Process-wide dependencies of a portal. */
export interface RelayContext {
  readonly sessions: AllSessions;
  readonly buffers: CopyBuffers;
  /** Called for what one portal cannot do, such as accept. */
  readonly onProblem: (problem: string, error: unknown) => void;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  readonly random: () => number;
  /** Milliseconds after which a UDP session without packets ends. */
  readonly udpIdleMs: number;
}

/** An open port of kproxy's own. */
export interface OpenPortal {
  readonly port: number;
  /** Takes endpoints and seconds of affinity over. Done, or resolves, when the next client gets one of these. */
  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void | Promise<void>;
  /** Takes no more clients; open sessions are served to their end. Resolves when others may have the port. */
  close(): Promise<void>;
}

/** Thrown if no port can be had. */
export class NoPortError extends Error {
  /** @param isDenied true if it is a lack of rights, as for ports below 1024 */
  constructor(message: string, readonly isDenied: boolean) {
    super(message);
    this.name = "NoPortError";
  }
}

/** Why a client was not served. */
export type RelayRefusal = "descriptors" | "limit" | "no endpoint" | "no answer" | "not redirected";

/** Counts of one protocol. */
export interface RelayCounts {
  open: number;
  opened: number;
  dialFailures: number;
  /** Sessions that a client with more than others has lost to another client. */
  evicted: number;
  /** Bytes from clients (`in`) and to them (`out`). */
  readonly bytes: { in: number; out: number };
  readonly refused: Record<RelayRefusal, number>;
}

/** Counts of all protocols. */
export type AllRelayCounts = Readonly<Record<PortalProtocol, RelayCounts>>;

/** Counts that are all zero. */
export function noRelayCounts(): AllRelayCounts {
  const of = (): RelayCounts => ({
    open: 0,
    opened: 0,
    dialFailures: 0,
    evicted: 0,
    bytes: { in: 0, out: 0 },
    refused: { descriptors: 0, limit: 0, "no endpoint": 0, "no answer": 0, "not redirected": 0 },
  });
  return { TCP: of(), UDP: of() };
}

/**
 * Most sessions at a time, however many descriptors are left: clients must not take all memory. A client of
 * UDP has a socket whose buffer takes 64 KiB.
 */
export const MOST_SESSIONS: Readonly<Record<PortalProtocol, number>> = { TCP: 32_768, UDP: 4_096 };

/** How often the log names a client that takes more than its share. */
const TELL_AGAIN_MS = 60_000;

/** A connection of TCP, or a client of UDP. */
export abstract class Session implements PooledConnection {
  readonly client: string;
  /** Time of the last bytes in either direction. */
  sinceMs: number;
  readonly phase = "answering";
  readonly deadlineMs = Infinity;
  readonly unsentBytes = 0;

  constructor(address: string, sinceMs: number) {
    this.client = clientOf(address);
    this.sinceMs = sinceMs;
  }

  abstract close(): void;
}

/**
 * The sessions of all portals of a protocol. When there is no room, the client with the most of them gives up the one that was silent for
 * longest, for a client that has at least two fewer; a client that has as many is refused.
 */
export class Sessions {
  readonly counts: RelayCounts;
  readonly #pool: ConnectionPool;
  readonly #lane: { readonly server: PortalProtocol; readonly most: number };

  /** @param pool of both protocols, which share the descriptors */
  constructor(pool: ConnectionPool, server: PortalProtocol, most: number, counts: RelayCounts) {
    this.#pool = pool;
    this.#lane = { server, most };
    this.counts = counts;
  }

  /** True if there is room for the session, until it leaves; else it is closed, and counted as refused. */
  admit(session: Session): boolean {
    if (this.#pool.admit(session, this.#lane) === "refused") {
      this.refuse(this.#pool.count(this.#lane) >= this.#lane.most ? "limit" : "descriptors");
      return false;
    }
    this.counts.open++;
    this.counts.opened++;
    return true;
  }

  leave(session: Session): void {
    this.#pool.leave(session);
    this.counts.open--;
  }

  refuse(reason: RelayRefusal): void {
    this.counts.refused[reason]++;
  }

  /** Reports that the system has no descriptor left, whatever was assured. */
  exhausted(): void {
    this.#pool.exhausted();
  }
}

/** Sessions of both protocols. */
export type AllSessions = Readonly<Record<PortalProtocol, Sessions>>;

/** Options of {@linkcode relaySessions}. */
export interface SessionOptions extends Pick<ConnectionPoolOptions, "allowance"> {
  /** @default {MOST_SESSIONS} */
  readonly most?: Readonly<Record<PortalProtocol, number>>;
  /** Called now and then with the client that took more than its share. */
  readonly onGreed: (message: string) => void;
}

/** Sessions of both protocols, none yet. */
export function relaySessions({ onGreed, most = MOST_SESSIONS, ...options }: SessionOptions): AllSessions {
  const counts = noRelayCounts();
  let toldMs = Number.NEGATIVE_INFINITY;
  const pool = new ConnectionPool({
    most: Infinity,
    least: 0,
    endsWaiting: false,
    ...options,
    observer: {
      open: () => {},
      failed: () => {},
      closed: (protocol, reason, client) => {
        if (reason === "evicted") counts[protocol as PortalProtocol].evicted++;
        if (pool.nowMs() - toldMs < TELL_AGAIN_MS) return;
        toldMs = pool.nowMs();
        onGreed(`${client} has ${pool.countOf(client)} of ${pool.count()}`);
      },
    },
  });
  const of = (protocol: PortalProtocol): Sessions =>
    new Sessions(pool, protocol, most[protocol], counts[protocol]);
  return { TCP: of("TCP"), UDP: of("UDP") };
}
