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
  /** Time of the last sync, or else of the start. */
  lastUpdated?: Moment;
  oldestQueuedMs?: number | undefined;
  firstSyncDone: boolean;
  lastApply?: { readonly at: Moment; readonly error: string | undefined };
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
  /** The snapshot whose objects are in force; null: none. */
  restored: RestoredState | null = null;
  /** Tables that another service proxy keeps making; none: there is no such proxy. */
  otherTables: readonly string[] = [];

  constructor({ families, syncPeriodMs, clock, refused = [] }: HealthStateOptions) {
    this.#clock = clock;
    this.#unserved = new Map(refused.map(({ family, reason }) => [family, { reason }]));
    this.#timeoutMs = 2 * syncPeriodMs;
    this.#families = new Map([...families].sort().map((family) => [family, { firstSyncDone: false }]));
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
    const at = this.#now();
    Object.assign(this.#of(family), {
      lastUpdated: at,
      oldestQueuedMs: undefined,
      firstSyncDone: true,
      lastApply: { at, error: undefined },
    });
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

  /** Notes that something relies on a family that the node cannot serve. */
  setUse(family: IpFamily, use: string): void {
    const unserved = this.#unserved.get(family);
    if (unserved !== undefined) this.#unserved.set(family, { ...unserved, use });
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

  /** Answer of `/healthz`: whether load balancers should send new traffic here. */
  healthz(): HealthAnswer {
    return this.#answer(this.#nodeEligible, { nodeEligible: this.#nodeEligible });
  }

  /** Answer of `/livez`: whether the proxy itself works. */
  livez(): HealthAnswer {
    return this.#answer(true);
  }

  /** Answer of `/readyz`, kproxy's own: whether its rules are up to date, and if not, why. */
  readyz(): HealthAnswer {
    const body = this.readiness();
    return { status: body.ready ? 200 : 503, body: JSON.stringify(body) };
  }

  /** Document of `/readyz`: readiness with reasons, and the state of families and watches. */
  readiness(): Readiness {
    const now = this.#now();
    const families = [...this.#families];
    const watches = this.#watches(now);
    const snapshot = this.restored === null ? undefined : shownSnapshot(this.restored, now.epochMs);
    const tables = this.otherTables.join(", ");
    const reasons = [
      ...families.flatMap(([family, health]) =>
        this.#reasons(health, now.nowMs).map((reason) => `${family}: ${reason}`)
      ),
      ...watches.flatMap(({ kind, reason }) => reason === null ? [] : `${kind}: ${reason}`),
      ...snapshot === undefined ? [] : [`${snapshot.kinds.join(", ")}: ${snapshotReason(snapshot)}`],
      ...tables === "" ? [] : [`another service proxy writes rules on this node: tables ${tables}`],
    ];
    return {
      ready: reasons.length === 0,
      reasons,
      currentTime: isoTime(now.epochMs),
      families: Object.fromEntries(
        families.map(([family, health]) => [family, shownFamily(health, now.nowMs)]),
      ),
      unserved: this.#unserved.size === 0 ? undefined : Object.fromEntries(this.#unserved),
      watches: Object.fromEntries(watches.map(({ kind, shown }) => [kind, shown])),
      snapshot,
    };
  }

  /** State of each watched kind of objects, and the reason why it is not ready. */
  #watches(now: Moment): { kind: ResourceKind; shown: WatchReadiness; reason: string | null }[] {
    const isStarting = [...this.#families.values()].some(({ firstSyncDone }) => !firstSyncDone);
    return [...new Set([...this.#heard.keys(), ...this.#problems.keys()])].sort().map((kind) => {
      const at = this.#heard.get(kind);
      const problem = this.#problems.get(kind);
      const why = problem === undefined ? "" : `: ${problem}`;
      // The first sync waits for the lists. Later on, kinds that could never be read are done without.
      if (at === undefined) {
        return { kind, shown: { problem }, reason: isStarting ? `not listed yet${why}` : null };
      }
      const ageMs = now.nowMs - at.nowMs;
      const age = seconds(ageMs);
      // Rules are right without ServiceCIDRs, and rights to read them may be taken away.
      const isSilent = ageMs > WATCH_LIMIT_MS && kind !== "servicecidrs";
      return {
        kind,
        shown: { ageSeconds: age, lastHeard: isoTime(at.epochMs), problem },
        reason: isSilent ? `nothing heard for ${age} s${why}` : null,
      };
    });
  }

  #reasons(health: FamilyHealth, nowMs: number): string[] {
    const { firstSyncDone, lastApply, oldestQueuedMs = nowMs } = health;
    const error = lastApply?.error;
    return [
      ...firstSyncDone ? [] : ["the first sync is not done"],
      ...error === undefined ? [] : [`the last sync failed: ${error}`],
      ...this.#isFresh(health, nowMs)
        ? []
        : [`a sync has been waiting for ${seconds(nowMs - oldestQueuedMs)} s`],
    ];
  }

  #answer(isOpen: boolean, node: { readonly nodeEligible?: boolean } = {}): HealthAnswer {
    const { nowMs, epochMs } = this.#now();
    const healthy = this.isProxyHealthy;
    const ok = healthy && isOpen;
    const known = [...this.#families].flatMap(([family, health]) =>
      health.lastUpdated === undefined ? [] : [{ family, health, atMs: health.lastUpdated.epochMs }]
    );
    // An answer of 200 shows its own time as the last update; kube-proxy's clients may count on it.
    const lastUpdatedMs = ok ? epochMs : Math.max(...known.map(({ atMs }) => atMs));
    const status = known.map(({ family, health, atMs }) =>
      [family, { lastUpdated: isoTime(atMs), healthy: this.#isFresh(health, nowMs) }] as const
    );
    const body = {
      lastUpdated: Number.isFinite(lastUpdatedMs) ? isoTime(lastUpdatedMs) : ZERO_TIME,
      currentTime: isoTime(epochMs),
      ...node,
      healthy,
      ...(status.length === 0 ? {} : { status: Object.fromEntries(status) }),
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

/** The snapshot for `/readyz`; its age is never negative, even if the clock was set back since. */
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
