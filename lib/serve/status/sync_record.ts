/**
 * How the syncs of one IP family went.
 *
 * @module
 */
import type { SyncFailure, SyncOutcome } from "../../sync/family_runner.ts";
import { errorText } from "../../observe/log.ts";
import { Recent } from "./recent.ts";
import type { FailureStatus, FamilyStatus, LatencyStatus, SyncPoint, SyncStatus } from "./status_document.ts";

/** How many syncs a plot shows. */
const POINTS = 120;
/** How many latencies the percentiles are of. */
const LATENCIES = 512;
/** Of one sync so many count: the first one after a long gap may bring thousands. */
const LATENCIES_PER_SYNC = 64;
const NAMED_SERVICES = 10;

/** Takes every sync of one family, and keeps some numbers of it. */
export class SyncRecord {
  readonly #points = new Recent<SyncPoint>(POINTS);
  readonly #latencies = new Recent<number>(LATENCIES);
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
    const changed = full ? state.services.size : services.length;
    this.#last = {
      time: new Date(timeMs).toISOString(),
      kind,
      durationMs,
      phasesMs: report.phasesMs ?? {},
      changed,
      services: services.slice(0, NAMED_SERVICES),
      written: report.written,
      commands: report.commands,
      bytes: report.bytes,
    };
    if (full) this.#lastFull = this.#last;
    const latencyMs = this.#takeLatencies(triggerTimesMs, timeMs);
    this.#points.add({ timeMs: Math.round(timeMs), durationMs, kind, ok: true, changed, latencyMs });
  }

  /** @param timeMs as of {@linkcode synced} */
  failed({ full, durationMs, error }: SyncFailure, timeMs: number): void {
    const kind = full ? "full" : "partial";
    this.#syncs.failed++;
    this.#lastFailure = {
      time: new Date(timeMs).toISOString(),
      kind,
      durationMs,
      error: errorText(error),
    };
    this.#points.add({
      timeMs: Math.round(timeMs),
      durationMs,
      kind,
      ok: false,
      changed: 0,
      latencyMs: null,
    });
  }

  /** As it is shown. */
  get status(): FamilyStatus {
    return {
      services: this.#services,
      endpoints: this.#endpoints,
      rules: this.#rules,
      syncs: { ...this.#syncs },
      lastSync: this.#last,
      lastFullSync: this.#lastFull,
      lastFailure: this.#lastFailure,
      latency: latencyStatus(this.#latencies.items),
      recent: this.#points.items,
    };
  }

  /** @returns the longest of those looked at; null if there is none. The changes come in the order in which they were heard of. */
  #takeLatencies(triggerTimesMs: readonly number[], timeMs: number): number | null {
    let longest: number | null = null;
    for (const triggerMs of triggerTimesMs.slice(0, LATENCIES_PER_SYNC)) {
      // The clock that wrote the time may be ahead of ours.
      const latencyMs = Math.max(0, timeMs - triggerMs);
      this.#latencies.add(latencyMs);
      longest = Math.max(longest ?? 0, latencyMs);
    }
    return longest;
  }
}

function latencyStatus(latenciesMs: readonly number[]): LatencyStatus {
  const sorted = [...latenciesMs].sort((one, other) => one - other);
  /** The smallest that so large a part does not exceed. */
  const percentile = (part: number): number | null => sorted[Math.ceil(part * sorted.length) - 1] ?? null;
  return {
    count: sorted.length,
    p50Ms: percentile(0.5),
    p99Ms: percentile(0.99),
    maxMs: sorted.at(-1) ?? null,
  };
}
