/**
 * Records what happens in one proxy server, for the status: a few numbers for each sync, and lists that do not
 * grow.
 *
 * @module
 */
import type { QuarantinedService } from "../../backend/backend.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { ProxyState } from "../../model/state.ts";
import type { DriftObserver, SyncFailure, SyncObserver, SyncOutcome } from "../../sync/family_runner.ts";
import type {
  DriftStatus,
  FailureStatus,
  FamilyStatus,
  LatencyStatus,
  QuarantineStatus,
  SyncPoint,
  SyncStatus,
} from "./status_document.ts";
import { errorText } from "../../observe/log.ts";
import { cut } from "../../text/quote.ts";
import { isoTime } from "../../text/words.ts";

const DRIFTS = 20;
/** Limit for a list that may hold thousands of Services. */
const SHOWN_QUARANTINED = 100;

/** Services in quarantine of one family. */
interface FamilyQuarantine {
  /** The list that a sync reported: the same object again means no change. */
  readonly list: readonly QuarantinedService[];
  readonly services: ReadonlyMap<NamespacedName, { readonly problem: string; readonly sinceMs: number }>;
}

type Drift = DriftStatus["recent"][number];

/** Record of the syncs, the quarantine and the drift of one proxy server. */
export class StatusRecord {
  /** Observes every sync. */
  readonly observer: SyncObserver;
  /** Observes damaged rules. */
  readonly drift: DriftObserver;
  readonly #nowMs: () => number;
  readonly #families: ReadonlyMap<IpFamily, SyncRecord>;
  readonly #states = new Map<IpFamily, ProxyState>();
  readonly #quarantined = new Map<IpFamily, FamilyQuarantine>();
  readonly #drifts: Drift[] = [];
  #generation = 0;
  #found = 0;
  #repaired = 0;

  /** @param nowMs milliseconds since the epoch */
  constructor(families: readonly IpFamily[], nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#families = new Map([...families].sort().map((family) => [family, new SyncRecord()]));
    this.observer = {
      synced: (outcome) => {
        const timeMs = nowMs();
        const { family, full, state, report } = outcome;
        const before = this.#quarantined.get(family);
        this.#takeQuarantine(family, report.quarantined, timeMs);
        const now = this.#quarantined.get(family);
        const services = full ? [] : withReleased(outcome.services, before, now);
        this.#families.get(family)?.synced({ ...outcome, services }, timeMs);
        this.#states.set(family, state);
        const isRequarantined = before !== now && (before?.list.length ?? 0) + (now?.list.length ?? 0) > 0;
        if (full || services.length > 0 || isRequarantined) this.#generation++;
      },
      failed: (failure) => this.#families.get(failure.family)?.failed(failure, nowMs()),
    };
    this.drift = {
      found: (family, damaged) => this.#takeDrift(family, damaged),
      repaired: (family, lasts) => this.#settleDrift(family, lasts),
    };
  }

  get families(): Readonly<Partial<Record<IpFamily, FamilyStatus>>> {
    return Object.fromEntries([...this.#families].map(([family, record]) => [family, record.status]));
  }

  /**
   * States of the families that were synced once. They belong to the sync loops, which change them in place: they are looked at for a
   * turn of the event loop and not kept.
   */
  get states(): ReadonlyMap<IpFamily, ProxyState> {
    return this.#states;
  }

  /** Grows whenever Services may look different. */
  get generation(): number {
    return this.#generation;
  }

  /** Services whose rules the kernel has refused, and why. */
  get quarantined(): ReadonlyMap<NamespacedName, string> {
    const all = [...this.#quarantined.values()].flatMap(({ services }) => [...services]);
    return new Map(all.map(([service, { problem }]) => [service, problem]));
  }

  get quarantine(): QuarantineStatus {
    const services: QuarantineStatus["services"][number][] = [];
    let count = 0;
    for (const [family, { services: quarantined }] of this.#quarantined) {
      count += quarantined.size;
      for (const [service, { problem, sinceMs }] of quarantined) {
        if (services.length >= SHOWN_QUARANTINED) break;
        services.push({ family, service, problem, since: isoTime(sinceMs) });
      }
    }
    return { count, services };
  }

  get drifts(): DriftStatus {
    return { found: this.#found, repaired: this.#repaired, recent: [...this.#drifts] };
  }

  #takeQuarantine(
    family: IpFamily,
    list: readonly QuarantinedService[] | undefined,
    timeMs: number,
  ): void {
    const before = this.#quarantined.get(family);
    if (list === undefined || before?.list === list) return;
    const services = list.map(({ service, problem }) => {
      const known = before?.services.get(service);
      return [service, known?.problem === problem ? known : { problem, sinceMs: timeMs }] as const;
    });
    this.#quarantined.set(family, { list, services: new Map(services) });
  }

  #takeDrift(family: IpFamily, damaged: readonly string[]): void {
    this.#found++;
    keepLast(this.#drifts, {
      family,
      time: isoTime(this.#nowMs()),
      damaged: [...damaged],
      outcome: "pending",
    }, DRIFTS);
  }

  #settleDrift(family: IpFamily, lasts: boolean): void {
    if (!lasts) this.#repaired++;
    const outcome = lasts ? "lasting" : "repaired";
    const at = this.#drifts.findLastIndex((drift) => drift.family === family && drift.outcome === "pending");
    const drift = this.#drifts[at];
    if (drift !== undefined) this.#drifts[at] = { ...drift, outcome };
  }
}

/** The Services that a sync covered: the changed ones, and those that left quarantine after another try. */
function withReleased(
  changed: readonly NamespacedName[],
  before: FamilyQuarantine | undefined,
  now: FamilyQuarantine | undefined,
): readonly NamespacedName[] {
  if (before === undefined || before === now) return changed;
  const released = [...before.services.keys()].filter((service) => now?.services.has(service) !== true);
  return [...new Set([...changed, ...released])];
}

/** How many syncs a plot shows. */
const POINTS = 120;
/** How many latencies the percentiles are of. */
const LATENCIES = 512;
/** Most latencies taken of one sync: the first one after a long gap may bring thousands. */
const LATENCIES_PER_SYNC = 64;
const NAMED_SERVICES = 10;
/** Longest error of each failure among the last syncs; the last failure has all of its own. */
const MAX_ERROR_LENGTH = 2_000;

/** Takes every sync of one family, and keeps some numbers of it. */
class SyncRecord {
  readonly #points: SyncPoint[] = [];
  readonly #latencies: number[] = [];
  readonly #syncs = { full: 0, partial: 0, failed: 0 };
  #services = 0;
  #endpoints = 0;
  #rules: Readonly<Record<string, number>> = {};
  #last: SyncStatus | null = null;
  #lastFull: SyncStatus | null = null;
  #lastFailure: FailureStatus | null = null;

  /** @param timeMs when it ended, in milliseconds since the epoch */
  synced(outcome: SyncOutcome, timeMs: number): void {
    const { full, durationMs, state, services, report, triggerTimesMs } = outcome;
    const kind = full ? "full" : "partial";
    this.#services = state.services.size;
    this.#endpoints = state.endpointCount;
    this.#rules = report.total;
    this.#syncs[kind]++;
    const common = {
      kind,
      durationMs,
      changed: full ? state.services.size : services.length,
      services: services.slice(0, NAMED_SERVICES),
      written: report.written,
    } as const;
    this.#last = {
      time: isoTime(timeMs),
      ...common,
      phasesMs: report.phasesMs ?? {},
      commands: report.commands,
      bytes: report.bytes,
    };
    if (full) this.#lastFull = this.#last;
    const latencyMs = this.#takeLatencies(triggerTimesMs, timeMs);
    keepLast(this.#points, { timeMs: Math.round(timeMs), ...common, ok: true, latencyMs }, POINTS);
  }

  /** @param timeMs as of {@linkcode synced} */
  failed({ full, durationMs, error }: SyncFailure, timeMs: number): void {
    const kind = full ? "full" : "partial";
    this.#syncs.failed++;
    const why = errorText(error);
    this.#lastFailure = { time: isoTime(timeMs), kind, durationMs, error: why };
    keepLast(this.#points, {
      timeMs: Math.round(timeMs),
      durationMs,
      kind,
      ok: false,
      changed: 0,
      error: cut(why, MAX_ERROR_LENGTH),
      latencyMs: null,
    }, POINTS);
  }

  /** The family's status. */
  get status(): FamilyStatus {
    return {
      services: this.#services,
      endpoints: this.#endpoints,
      rules: this.#rules,
      syncs: { ...this.#syncs },
      lastSync: this.#last,
      lastFullSync: this.#lastFull,
      lastFailure: this.#lastFailure,
      latency: latencyStatus(this.#latencies),
      recent: [...this.#points],
    };
  }

  /** @returns the longest latency taken; null if there is none. The changes come in the order in which they were heard of. */
  #takeLatencies(triggerTimesMs: readonly number[], timeMs: number): number | null {
    let longest: number | null = null;
    for (const triggerMs of triggerTimesMs.slice(0, LATENCIES_PER_SYNC)) {
      // The clock that wrote the time may be ahead of this one.
      const latencyMs = Math.max(0, timeMs - triggerMs);
      keepLast(this.#latencies, latencyMs, LATENCIES);
      longest = Math.max(longest ?? 0, latencyMs);
    }
    return longest;
  }
}

function latencyStatus(latenciesMs: readonly number[]): LatencyStatus {
  const sorted = [...latenciesMs].sort((one, other) => one - other);
  /** The smallest latency that so large a part does not exceed. */
  const percentile = (part: number): number | null => sorted[Math.ceil(part * sorted.length) - 1] ?? null;
  return {
    count: sorted.length,
    p50Ms: percentile(0.5),
    p99Ms: percentile(0.99),
    maxMs: sorted.at(-1) ?? null,
  };
}

/** Adds an item to a list that keeps the last `most`. */
function keepLast<Item>(items: Item[], item: Item, most: number): void {
  items.push(item);
  if (items.length > most) items.shift();
}
