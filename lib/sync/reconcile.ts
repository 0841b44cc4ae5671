/**
 * One IP family's way from pending changes to the kernel: check out, sync, and forget a change only once it is
 * committed.
 *
 * @module
 */
import type { ApplyReport, FamilyProxier } from "../backend/backend.ts";
import { SyncError } from "../errors.ts";
import { everybodysTurn, TURN_MS } from "../kernel/turns.ts";
import type { ChangeTracker } from "../model/change_tracker.ts";
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { ProxyState } from "../model/state.ts";

/** A sync that reached its state. */
export interface SyncOutcome {
  readonly family: IpFamily;
  /** True if everything was written, not only the changed Services. */
  readonly full: boolean;
  readonly report: ApplyReport;
  readonly durationMs: number;
  /** The Services looked at; empty for a full sync. */
  readonly services: readonly NamespacedName[];
  /** Times, in milliseconds since the epoch, at which the endpoint changes of this sync were triggered. */
  readonly triggerTimesMs: readonly number[];
  /** True if UDP endpoints changed since the last sync that succeeded. */
  readonly udpEndpointsChanged: boolean;
  /** True if a Service with a UDP port changed since the last sync that succeeded. */
  readonly udpServicesChanged: boolean;
  readonly state: ProxyState;
}

/** A sync that failed; the next one will be full. */
export interface SyncFailure {
  readonly family: IpFamily;
  readonly full: boolean;
  readonly error: SyncError;
  readonly durationMs: number;
}

/** Hears of every sync. */
export interface SyncObserver {
  /** A sync has taken over what was pending. */
  begun?(sync: { readonly family: IpFamily }): void;
  synced(outcome: SyncOutcome): void;
  failed(failure: SyncFailure): void;
}

/** What a {@linkcode Reconciler} needs. */
export interface ReconcilerOptions {
  readonly tracker: ChangeTracker;
  readonly proxier: FamilyProxier;
  readonly observer: SyncObserver;
  /** Work on the state that was reached; the next sync waits for it. Must not reject. */
  readonly afterSync?: (outcome: SyncOutcome) => Promise<void>;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** A full sync is due this long after the last one, unless the cluster is large. */
const FULL_SYNC_INTERVAL_MS = 3_600_000;
/** Above this many endpoints a family counts as large: no hourly full sync (kube-proxy 1.36.1). */
const LARGE_CLUSTER_ENDPOINTS = 1000;

/** Drives the syncs of one family; the caller runs one at a time. */
export class Reconciler {
  readonly #options: ReconcilerOptions;
  #uncommitted = new Set<NamespacedName>();
  #triggerTimesMs: number[] = [];
  #udpEndpointsChanged = false;
  #udpServicesChanged = false;
  #fullSyncNeeded = true;
  #lastFullSyncMs = Number.NEGATIVE_INFINITY;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  get family(): IpFamily {
    return this.#options.proxier.family;
  }

  /** Makes the next sync write everything. */
  requireFullSync(): void {
    this.#fullSyncNeeded = true;
  }

  /** Makes the next sync look at these Services as if they had changed. */
  requireSync(services: Iterable<NamespacedName>): void {
    for (const service of services) this.#uncommitted.add(service);
  }

  /**
   * Brings the kernel to the newest state.
   *
   * @returns false if that took no program, so that the next one need not wait
   * @throws {SyncError} after telling the observer; the changes stay pending and the next sync is a full one
   */
  async reconcile(): Promise<boolean> {
    const { tracker, proxier, observer, nowMs } = this.#options;
    const startMs = nowMs();
    const { state, updatedServices, triggerTimesMs, ...udp } = tracker.checkout();
    observer.begun?.({ family: proxier.family });
    for (const service of updatedServices) this.#uncommitted.add(service);
    this.#triggerTimesMs.push(...triggerTimesMs);
    this.#udpEndpointsChanged ||= udp.udpEndpointsChanged;
    this.#udpServicesChanged ||= udp.udpServicesChanged;

    const full = this.#fullSyncNeeded || this.#hourlySyncDue(state, startMs);
    // Taken over before the await: a full sync asked for while this one runs must not be forgotten.
    this.#fullSyncNeeded = false;
    // The same goes for Services that are to be looked at again, be it because of what is found meanwhile.
    const changed = this.#uncommitted;
    this.#uncommitted = new Set();
    try {
      if (nowMs() - startMs >= TURN_MS) await everybodysTurn();
      const report = await proxier.sync({ state, changed: full ? "all" : changed });
      const endMs = nowMs();
      if (full) this.#lastFullSyncMs = endMs;
      const outcome = {
        family: proxier.family,
        full,
        report: withTooLarge(report, state),
        durationMs: endMs - startMs,
        services: full ? [] : [...changed],
        triggerTimesMs: this.#triggerTimesMs,
        udpEndpointsChanged: this.#udpEndpointsChanged,
        udpServicesChanged: this.#udpServicesChanged,
        state,
      };
      this.#triggerTimesMs = [];
      this.#udpEndpointsChanged = false;
      this.#udpServicesChanged = false;
      observer.synced(outcome);
      await this.#options.afterSync?.(outcome);
      // Work on UDP flows starts programs, too.
      return full || report.commands > 0 || outcome.udpEndpointsChanged || outcome.udpServicesChanged;
    } catch (cause) {
      this.#fullSyncNeeded = true;
      this.requireSync(changed);
      const error = cause instanceof SyncError
        ? cause
        : new SyncError("sync", "apply", cause instanceof Error ? cause.message : String(cause), { cause });
      observer.failed({ family: proxier.family, full, error, durationMs: nowMs() - startMs });
      throw error;
    }
  }

  #hourlySyncDue(state: ProxyState, nowMs: number): boolean {
    return nowMs - this.#lastFullSyncMs >= FULL_SYNC_INTERVAL_MS &&
      state.endpointCount <= LARGE_CLUSTER_ENDPOINTS;
  }
}

/** Services that are too large are quarantined as those are of which the tools refuse something. */
function withTooLarge(report: ApplyReport, { tooLarge }: ProxyState): ApplyReport {
  if (tooLarge.size === 0) return report;
  const quarantined = [...tooLarge].map(([service, problem]) => ({ service, problem }));
  return { ...report, quarantined: [...report.quarantined ?? [], ...quarantined] };
}
