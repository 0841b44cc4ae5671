/**
 * One IP family at work: its pending changes, its pace, and its watch over rules that others may remove.
 *
 * @module
 */
import type { FamilyProxier } from "../backend/backend.ts";
import type { SyncPeriods } from "../config/types.ts";
import type { ChangeTracker } from "../model/change_tracker.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { type StaleFlowOptions, StaleFlowReconciler } from "./conntrack.ts";
import type { FamilyLane } from "./proxy_loop.ts";
import { Reconciler, type SyncObserver } from "./reconcile.ts";
import { type DriftObserver, RuleChecks } from "./rule_checks.ts";
import { backoffMs, Throttle } from "./throttle.ts";

/** What a {@linkcode FamilyRunner} needs. */
export interface FamilyRunnerOptions {
  readonly tracker: ChangeTracker;
  readonly proxier: FamilyProxier;
  readonly periods: SyncPeriods;
  readonly observer: SyncObserver;
  readonly log: Logger;
  /** Called at every request for a sync. */
  readonly onQueued: (family: IpFamily) => void;
  /** Without it, flows in connection tracking are left alone. */
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
export class FamilyRunner implements FamilyLane {
  readonly family: IpFamily;
  readonly tracker: ChangeTracker;
  readonly #options: FamilyRunnerOptions;
  readonly #reconciler: Reconciler;
  readonly #throttle: Throttle;
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
      check: () => proxier.checkCanary(),
      observer: options.drift,
      repair: (services) => {
        if (services === "all") this.#reconciler.requireFullSync();
        else this.#reconciler.requireSync(services);
        this.requestSync();
      },
    });
    const { syncPeriod, minSyncPeriod } = options.periods;
    this.#throttle = new Throttle({
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
    this.#throttle.start();
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
    await this.#throttle.stop();
    await Promise.all(this.#looks);
  }

  requestSync(): void {
    this.#options.onQueued(this.family);
    this.#throttle.request();
  }

  /** Makes the next sync write everything, without asking for one. */
  requireFullSync(): void {
    this.#reconciler.requireFullSync();
  }

  /** It may still be under way when everything ends. */
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
