/**
 * Runs one IP family: its pending changes, the pace of its syncs, and checks of rules that others may remove.
 *
 * @module
 */
import type { ApplyReport, Damage, FamilyProxier } from "../backend/backend.ts";
import type { SyncPeriods } from "../config/types.ts";
import type { ChangeTracker } from "../model/change_tracker.ts";
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { type StaleFlowOptions, StaleFlowReconciler } from "./stale_flows.ts";
import type { HandledFamily } from "./event_handlers.ts";
import { backoffMs, BoundedFrequencyRunner } from "./bounded_frequency_runner.ts";
import { SyncError } from "../errors.ts";
import { TURN_MS, yieldToOthers } from "../kernel/clock.ts";
import type { ProxyState } from "../model/state.ts";

/** Dependencies of a {@linkcode FamilyRunner}. */
export interface FamilyRunnerOptions {
  readonly tracker: ChangeTracker;
  readonly proxier: FamilyProxier;
  readonly periods: SyncPeriods;
  readonly observer: SyncObserver;
  readonly log: Logger;
  /** Called at every request for a sync. */
  readonly onQueued: (family: IpFamily) => void;
  /** Removal of stale UDP flows; without it, flows in connection tracking are left alone. */
  readonly staleFlows?: Pick<StaleFlowOptions, "conntrack" | "nodePortIps" | "observe">;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
  readonly drift?: DriftObserver;
}

/** Without any event a sync runs at least this often. */
const MAX_INTERVAL_MS = 3_600_000;
/** The wait after a first failed sync; it doubles up to the sync period. */
const FIRST_RETRY_MS = 1_000;

/** Runs the syncs of one family until stopped. */
export class FamilyRunner implements HandledFamily {
  readonly family: IpFamily;
  readonly tracker: ChangeTracker;
  readonly #options: FamilyRunnerOptions;
  readonly #reconciler: Reconciler;
  readonly #runner: BoundedFrequencyRunner;
  readonly #staleFlows: StaleFlowReconciler | undefined;
  readonly #checks: RuleChecks;
  #checkTimer: ReturnType<typeof setInterval> | undefined;
  readonly #looks = new Set<Promise<void>>();

  constructor(options: FamilyRunnerOptions) {
    this.#options = options;
    this.family = options.proxier.family;
    this.tracker = options.tracker;
    const nowMs = (): number => performance.now();
    const { proxier, tracker, observer, log, random } = options;
    const staleFlows = options.staleFlows === undefined ? undefined : new StaleFlowReconciler({
      ...options.staleFlows,
      family: this.family,
      log,
      requestSync: () => this.requestSync(),
      nowMs,
      random,
    });
    this.#staleFlows = staleFlows;
    this.#reconciler = new Reconciler({
      tracker,
      proxier,
      observer,
      nowMs,
      ...(staleFlows === undefined ? {} : { afterSync: (outcome) => staleFlows.afterSync(outcome) }),
    });
    this.#checks = new RuleChecks({
      family: this.family,
      log,
      check: () => proxier.findDamage(),
      observer: options.drift,
      repair: () => {
        this.requireFullSync();
        this.requestSync();
      },
    });
    const { syncPeriod, minSyncPeriod } = options.periods;
    this.#runner = new BoundedFrequencyRunner({
      run: async () => {
        this.#checks.syncBegins();
        const hasWorked = await this.#reconciler.reconcile();
        this.#look(this.#checks.synced());
        return hasWorked;
      },
      minIntervalMs: minSyncPeriod,
      maxIntervalMs: MAX_INTERVAL_MS,
      retryMs: (failures) =>
        backoffMs(failures, {
          initialMs: Math.min(FIRST_RETRY_MS, syncPeriod),
          maxMs: syncPeriod,
          random,
        }),
    });
  }

  /** Begins to serve requests and to look after the rules. */
  start(): void {
    this.#runner.start();
    this.#checkTimer = setInterval(() => {
      this.#followAddresses();
      this.#look(this.#checks.periodic());
    }, this.#options.periods.syncPeriod);
  }

  /** Ends after the sync under way. Rules stay as they are. */
  async stop(): Promise<void> {
    this.#checks.end();
    clearInterval(this.#checkTimer);
    this.#staleFlows?.stop();
    await this.#runner.stop();
    await Promise.all(this.#looks);
  }

  requestSync(): void {
    this.#options.onQueued(this.family);
    this.#runner.request();
  }

  /** Makes the next sync write everything, without asking for one. */
  requireFullSync(): void {
    this.#reconciler.requireFullSync();
  }

  /** Starts a check of the rules, for the end of which `stop` waits. */
  #look(look: Promise<void>): void {
    const done = look.finally(() => this.#looks.delete(done));
    this.#looks.add(done);
  }

  #followAddresses(): void {
    const { proxier, log } = this.#options;
    try {
      if (proxier.isOutdated?.() !== true) return;
    } catch (error) {
      log.error("Cannot read the addresses of the node", error, { family: this.family });
      return;
    }
    log.info("Addresses of the node changed, rules follow", { family: this.family });
    this.requestSync();
  }
}

/** A sync that succeeded. */
export interface SyncOutcome {
  readonly family: IpFamily;
  /** True if everything was written, not only the changed Services. */
  readonly full: boolean;
  readonly report: ApplyReport;
  readonly durationMs: number;
  /** The Services that were synced; empty for a full sync. */
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

/** Observes every sync. */
export interface SyncObserver {
  /** A sync has begun, and has taken over the pending changes. */
  begun?(sync: { readonly family: IpFamily }): void;
  synced(outcome: SyncOutcome): void;
  failed(failure: SyncFailure): void;
}

/** Dependencies of a {@linkcode Reconciler}. */
export interface ReconcilerOptions {
  readonly tracker: ChangeTracker;
  readonly proxier: FamilyProxier;
  readonly observer: SyncObserver;
  /** Work on the synced state; the next sync waits for it. Must not reject. */
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

  /**
   * Brings the kernel to the newest state.
   *
   * @returns false if no program was run for it, so that the next one need not wait
   * @throws {SyncError} after a call of the observer; the next sync is a full one
   */
  async reconcile(): Promise<boolean> {
    const { tracker, proxier, observer, nowMs } = this.#options;
    const startMs = nowMs();
    const { state, updatedServices: changed, triggerTimesMs, ...udp } = tracker.checkout();
    observer.begun?.({ family: proxier.family });
    this.#triggerTimesMs.push(...triggerTimesMs);
    this.#udpEndpointsChanged ||= udp.udpEndpointsChanged;
    this.#udpServicesChanged ||= udp.udpServicesChanged;

    const full = this.#fullSyncNeeded || this.#hourlySyncDue(state, startMs);
    // Taken over before the await: a full sync asked for while this one runs must not be forgotten.
    this.#fullSyncNeeded = false;
    try {
      if (nowMs() - startMs >= TURN_MS) await yieldToOthers();
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

/** Adds Services that are too large to the quarantine, beside those whose rules were refused. */
function withTooLarge(report: ApplyReport, { tooLarge }: ProxyState): ApplyReport {
  if (tooLarge.size === 0) return report;
  const quarantined = [...tooLarge].map(([service, problem]) => ({ service, problem }));
  return { ...report, quarantined: [...report.quarantined ?? [], ...quarantined] };
}

/** Dependencies of {@linkcode RuleChecks}. */
export interface RuleChecksOptions {
  readonly family: IpFamily;
  /** Looks for damage, as `FamilyProxier.findDamage`. */
  readonly check: () => Promise<false | null | Damage>;
  /** Asks for a sync that writes everything again; `syncBegins` and `synced` report it. */
  readonly repair: () => void;
  readonly log: Logger;
  readonly observer?: DriftObserver | undefined;
}

/** Observes damage that other programs do to the rules. */
export interface DriftObserver {
  /** Damage was found, in the tools' names, and is about to be repaired. */
  found(family: IpFamily, damaged: readonly string[]): void;
  /** The damage was repaired; `lasts`: it is still there. */
  repaired(family: IpFamily, lasts: boolean): void;
}

/** Longest wait after repairs that did not help, in checks: an hour at the default sync period. */
const MAX_SKIPPED_CHECKS = 120;

/**
 * One check at a time. After a repair it looks at once whether that helped: what others damage again later is repaired again, but
 * what is still "damaged" then is either changed by another program all the time or no damage at all, and repair at every check is of no
 * use. Then the checks are resumed after 1, 3, 7, … of them.
 */
export class RuleChecks {
  readonly #options: RuleChecksOptions;
  #isChecking = false;
  /** True while a requested repair is not done yet. */
  #isRepairing = false;
  /** True if the sync under way began after that request. */
  #isRepairUnderWay = false;
  #hasEnded = false;
  /** Damage that the repair is about. */
  #repaired: readonly string[] = [];
  #undoneRepairs = 0;
  #skipped = 0;
  #lastProblem = "";

  constructor(options: RuleChecksOptions) {
    this.#options = options;
  }

  /** To be called once each sync period. Rejects never: what goes wrong is logged. */
  async periodic(): Promise<void> {
    if (this.#isChecking || this.#isRepairing) return;
    if (this.#skipped > 0) {
      this.#skipped--;
      return;
    }
    const damage = await this.#look();
    if (damage === null) return;
    const { log, family, repair, observer } = this.#options;
    observer?.found(family, damage);
    if (this.#undoneRepairs === 0) {
      log.warn("Rules were changed or removed by something else, writing them again", {
        family,
        damaged: damage,
      });
    }
    this.#isRepairing = true;
    this.#repaired = damage;
    repair();
  }

  /** A sync begins, which does the repair that was requested until now. */
  syncBegins(): void {
    this.#isRepairUnderWay = this.#isRepairing;
  }

  /** To be called after each sync that succeeded. Rejects never. */
  async synced(): Promise<void> {
    if (!this.#isRepairUnderWay) return;
    this.#isRepairing = this.#isRepairUnderWay = false;
    const damage = await this.#look();
    const { log, family, observer } = this.#options;
    // Other damage was done since: the next check is about that.
    const lasts = damage !== null && isAbout(this.#repaired, damage);
    observer?.repaired(family, lasts);
    if (!lasts) return;
    this.#undoneRepairs++;
    this.#skipped = Math.min(2 ** (this.#undoneRepairs - 1) - 1, MAX_SKIPPED_CHECKS);
    if (this.#undoneRepairs > 1) return;
    log.error(
      "Rules differ from what was written right after they were written; checks of them become rare",
      "something else changes them all the time, or they are printed in a way that kproxy does not know",
      { family, damaged: damage },
    );
  }

  /** Ends the checks: a failure that the shutdown causes is no problem. */
  end(): void {
    this.#hasEnded = true;
  }

  /** The damage that a check finds; null: there is none, or that is unknown. */
  async #look(): Promise<Damage | null> {
    if (this.#hasEnded) return null;
    const { check, log, family } = this.#options;
    this.#isChecking = true;
    try {
      const damage = await check();
      this.#lastProblem = "";
      // An unknown state says nothing of repairs that failed, either.
      if (damage !== false) return damage;
      if (this.#undoneRepairs > 0) log.info("Rules stay as they were written again", { family });
      this.#undoneRepairs = 0;
    } catch (error) {
      const problem = String(error);
      // Logged once, not in every period.
      if (problem !== this.#lastProblem && !this.#hasEnded) {
        log.error("Cannot check whether the rules are still there", error, { family });
      }
      this.#lastProblem = problem;
    } finally {
      this.#isChecking = false;
    }
    return null;
  }
}

/** True if some of the repaired rules are damaged again, or if it is unknown which rules are damaged. */
function isAbout(repaired: Damage, found: Damage): boolean {
  return repaired.length === 0 || found.length === 0 || found.some((one) => repaired.includes(one));
}
