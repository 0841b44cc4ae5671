/**
 * State of the proxy's health, and the health server's answers.
 *
 * @module
 */
import { isNodeEligible } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import type { ResourceKind, RestoredState } from "../source/source.ts";
import { isoTime } from "../text/words.ts";
import type {
  FamilyReadiness,
  Readiness,
  SnapshotReadiness,
  WatchReadiness,
} from "./status/status_document.ts";

/** Clocks of the health server. */
export interface HealthClock {
  /** Milliseconds, monotonic: for decisions. */
  nowMs(): number;
  /** Milliseconds since the epoch: for display. */
  epochMs(): number;
}

/** The machine's own clocks. */
export const systemHealthClock: HealthClock = {
  nowMs: () => performance.now(),
  epochMs: () => Date.now(),
};

/** Dependencies of a {@linkcode HealthState}. */
export interface HealthStateOptions {
  /** The families that are proxied. */
  readonly families: readonly IpFamily[];
  /** A sync that has been waiting for more than twice this is stuck, in milliseconds. */
  readonly syncPeriodMs: number;
  readonly clock: HealthClock;
  /** Families that the node cannot serve, and why. @default {[]} */
  readonly refused?: readonly { readonly family: IpFamily; readonly reason: string }[] | undefined;
}

/** One answer of the health server. */
export interface HealthAnswer {
  readonly status: 200 | 503;
  /** Compact JSON. */
  readonly body: string;
}

/**
 * A watch that was silent for longer is a dead one: the server sends a bookmark about every minute, and a watch without a byte for 90 s
 * is opened anew.
 */
const WATCH_LIMIT_MS = 180_000;

interface Moment {
  readonly nowMs: number;
  readonly epochMs: number;
}

interface FamilyHealth {
  lastUpdated: Moment | undefined;
  oldestQueuedMs: number | undefined;
  firstSyncDone: boolean;
  lastApply: { readonly at: Moment; readonly error: string | undefined } | undefined;
}

/**
 * Tracks syncs and watches. Source: kube-proxy 1.36 `/healthz` and `/livez`; differs: a Node never seen counts as
 * eligible, and a sync that failed counts as waiting even if none was requested.
 */
export class HealthState {
  readonly #clock: HealthClock;
  readonly #timeoutMs: number;
  readonly #families: ReadonlyMap<IpFamily, FamilyHealth>;
  readonly #heard = new Map<ResourceKind, Moment>();
  /** Kind → why nothing is heard of it. */
  readonly #problems = new Map<ResourceKind, string>();
  /** Families that the node cannot serve: no failure of the proxy, but reported. */
  readonly #unserved: Map<IpFamily, { readonly reason: string; readonly use?: string }>;
  #nodeEligible = true;
  #restored: RestoredState | null = null;
  #otherTables: readonly string[] = [];

  constructor(
    { families, syncPeriodMs, clock, refused = [] }: HealthStateOptions,
  ) {
    this.#clock = clock;
    this.#unserved = new Map(refused.map(({ family, reason }) => [family, { reason }]));
    this.#timeoutMs = 2 * syncPeriodMs;
    this.#families = new Map(
      [...families].sort().map((family) => [family, {
        lastUpdated: undefined,
        oldestQueuedMs: undefined,
        firstSyncDone: false,
        lastApply: undefined,
      }]),
    );
  }

  /** The sync loops run: from now on the health pages list the families. */
  started(): void {
    const at = this.#now();
    for (const health of this.#families.values()) health.lastUpdated = at;
  }

  /** A sync was requested, or has begun. */
  queued(family: IpFamily): void {
    this.#of(family).oldestQueuedMs ??= this.#clock.nowMs();
  }

  /** A sync succeeded. */
  synced(family: IpFamily): void {
    const health = this.#of(family);
    const at = this.#now();
    health.lastUpdated = at;
    health.oldestQueuedMs = undefined;
    health.firstSyncDone = true;
    health.lastApply = { at, error: undefined };
  }

  /** A sync failed, so that one is still needed. */
  failed(family: IpFamily, error: string): void {
    this.queued(family);
    this.#of(family).lastApply = { at: this.#now(), error };
  }

  /** Sets the own Node; undefined: it is gone. */
  setNode(node: NodeObject | undefined): void {
    this.#nodeEligible = isNodeEligible(node ?? null);
  }

  /** Notes a sign of life from the source's origin for this kind, be it without a change. */
  heard(kind: ResourceKind): void {
    this.#heard.set(kind, this.#now());
    this.#problems.delete(kind);
  }

  /** Notes why the source's origin cannot be asked for this kind at the moment. */
  sourceFailed(kind: ResourceKind, reason: string): void {
    this.#problems.set(kind, reason);
  }

  /** Sets the snapshot whose objects are in force; null: none any longer. */
  setRestored(state: RestoredState | null): void {
    this.#restored = state;
  }

  /** Notes that something relies on a family that the node cannot serve. */
  setUse(family: IpFamily, use: string): void {
    const unserved = this.#unserved.get(family);
    if (unserved !== undefined) this.#unserved.set(family, { ...unserved, use });
  }

  /** Sets the tables that another service proxy keeps making; none: there is no such proxy. */
  setOtherTables(tables: readonly string[]): void {
    this.#otherTables = tables;
  }

  /** False if a sync of some family has been waiting for too long. The Node does not matter. */
  get isProxyHealthy(): boolean {
    const nowMs = this.#clock.nowMs();
    return [...this.#families.values()].every((health) => this.#isFresh(health, nowMs));
  }

  /** False if the own Node must not get new traffic. */
  get isNodeEligible(): boolean {
    return this.#nodeEligible;
  }

  /** Tables that another service proxy keeps making. */
  get otherTables(): readonly string[] {
    return this.#otherTables;
  }

  /** Answer of `/healthz`: whether load balancers should send new traffic here. */
  healthz(): HealthAnswer {
    const healthy = this.isProxyHealthy;
    return this.#answer(healthy, healthy && this.#nodeEligible, { nodeEligible: this.#nodeEligible });
  }

  /** Answer of `/livez`: whether the proxy itself works. */
  livez(): HealthAnswer {
    const healthy = this.isProxyHealthy;
    return this.#answer(healthy, healthy, {});
  }

  /** Answer of `/readyz`, kproxy's own: whether its rules are up to date, and if not, why. */
  readyz(): HealthAnswer {
    const body = this.readiness();
    return { status: body.ready ? 200 : 503, body: JSON.stringify(body) };
  }

  /** Document of `/readyz`: readiness with reasons, and the state of families and watches. */
  readiness(): Readiness {
    const now = this.#now();
    const reasons: string[] = [];
    const families: Record<string, FamilyReadiness> = {};
    for (const [family, health] of this.#families) {
      reasons.push(...this.#reasons(family, health, now.nowMs));
      families[family] = shownFamily(health, now.nowMs);
    }
    const watches = this.#watches(now, reasons);
    const snapshot = this.#restored === null ? undefined : shownSnapshot(this.#restored, now.epochMs);
    if (snapshot !== undefined) {
      reasons.push(`${snapshot.kinds.join(", ")}: ${snapshotReason(snapshot)}`);
    }
    if (this.#otherTables.length > 0) {
      reasons.push(`another service proxy writes rules on this node: tables ${this.#otherTables.join(", ")}`);
    }
    const ready = reasons.length === 0;
    const unserved = this.#unserved.size === 0 ? undefined : Object.fromEntries(this.#unserved);
    return {
      ready,
      reasons,
      currentTime: isoTime(now.epochMs),
      families,
      unserved,
      watches,
      snapshot,
    };
  }

  /** State of the watch of each kind; adds problems to `reasons`. */
  #watches(now: Moment, reasons: string[]): Record<string, WatchReadiness> {
    const watches: Record<string, WatchReadiness> = {};
    const isStarting = [...this.#families.values()].some(({ firstSyncDone }) => !firstSyncDone);
    for (const kind of [...new Set([...this.#heard.keys(), ...this.#problems.keys()])].sort()) {
      const at = this.#heard.get(kind);
      const problem = this.#problems.get(kind);
      const why = problem === undefined ? "" : `: ${problem}`;
      if (at === undefined) {
        watches[kind] = { problem };
        // The first sync waits for the lists. Later on, kinds that could never be read are done without.
        if (isStarting) reasons.push(`${kind}: not listed yet${why}`);
        continue;
      }
      const ageMs = now.nowMs - at.nowMs;
      watches[kind] = { ageSeconds: seconds(ageMs), lastHeard: isoTime(at.epochMs), problem };
      // Rules are right without ServiceCIDRs, and rights to read them may be taken away.
      if (ageMs > WATCH_LIMIT_MS && kind !== "servicecidrs") {
        reasons.push(`${kind}: nothing heard for ${seconds(ageMs)} s${why}`);
      }
    }
    return watches;
  }

  #reasons(family: IpFamily, health: FamilyHealth, nowMs: number): string[] {
    const reasons: string[] = [];
    if (!health.firstSyncDone) reasons.push(`${family}: the first sync is not done`);
    const error = health.lastApply?.error;
    if (error !== undefined) reasons.push(`${family}: the last sync failed: ${error}`);
    if (!this.#isFresh(health, nowMs)) {
      reasons.push(
        `${family}: a sync has been waiting for ${seconds(nowMs - (health.oldestQueuedMs ?? nowMs))} s`,
      );
    }
    return reasons;
  }

  #answer(healthy: boolean, ok: boolean, node: { readonly nodeEligible?: boolean }): HealthAnswer {
    const { nowMs, epochMs } = this.#now();
    const status: Record<string, unknown> = {};
    let newestMs = Number.NEGATIVE_INFINITY;
    for (const [family, health] of this.#families) {
      if (health.lastUpdated === undefined) continue;
      newestMs = Math.max(newestMs, health.lastUpdated.epochMs);
      status[family] = {
        lastUpdated: isoTime(health.lastUpdated.epochMs),
        healthy: this.#isFresh(health, nowMs),
      };
    }
    // An answer of 200 shows its own time as the last update; kube-proxy's clients may count on it.
    const lastUpdatedMs = ok ? this.#clock.epochMs() : newestMs;
    const body = {
      lastUpdated: Number.isFinite(lastUpdatedMs) ? isoTime(lastUpdatedMs) : ZERO_TIME,
      currentTime: isoTime(epochMs),
      ...node,
      healthy,
      ...(Object.keys(status).length === 0 ? {} : { status }),
    };
    return { status: ok ? 200 : 503, body: JSON.stringify(body) };
  }

  #isFresh({ lastUpdated, oldestQueuedMs }: FamilyHealth, nowMs: number): boolean {
    return lastUpdated === undefined || oldestQueuedMs === undefined ||
      nowMs - oldestQueuedMs < this.#timeoutMs;
  }

  #of(family: IpFamily): FamilyHealth {
    const health = this.#families.get(family);
    if (health === undefined) throw new RangeError(`${family} is not proxied`);
    return health;
  }

  #now(): Moment {
    return { nowMs: this.#clock.nowMs(), epochMs: this.#clock.epochMs() };
  }
}

function shownFamily(health: FamilyHealth, nowMs: number): FamilyReadiness {
  const { firstSyncDone, oldestQueuedMs, lastApply } = health;
  return {
    firstSyncDone,
    waitingSeconds: oldestQueuedMs === undefined ? 0 : seconds(nowMs - oldestQueuedMs),
    ...(lastApply === undefined ? {} : {
      lastApply: {
        succeeded: lastApply.error === undefined,
        time: isoTime(lastApply.at.epochMs),
        ageSeconds: seconds(nowMs - lastApply.at.nowMs),
        ...(lastApply.error === undefined ? {} : { error: lastApply.error }),
      },
    }),
  };
}

/** The clock may have been set back since: an age is never negative. */
function shownSnapshot(
  { savedAtMs, kinds, expiresAtMs, isServed }: RestoredState,
  epochMs: number,
): SnapshotReadiness {
  return {
    time: isoTime(savedAtMs),
    ageSeconds: seconds(Math.max(0, epochMs - savedAtMs)),
    kinds,
    served: isServed,
    expired: expiresAtMs !== null && epochMs > expiresAtMs,
  };
}

function snapshotReason({ time, served, expired }: SnapshotReadiness): string {
  const age = "older than kproxy.snapshotMaxAge";
  if (!served) return `not listed yet, and the snapshot of ${time} is not served: it is ${age}`;
  return `serving from the snapshot of ${time}${expired ? `, which is now ${age}` : ""}`;
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}

/** Go's text of a time that was never set. */
const ZERO_TIME = "0001-01-01T00:00:00Z";
