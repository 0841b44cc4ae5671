/**
 * Removes UDP flows that contradict the rules just written, for one IP family.
 *
 * @module
 */
import { within } from "../kernel/clock.ts";
import {
  type FlowDeletion,
  type FlowRules,
  groupFlows,
  isEmpty,
  NO_UDP_TARGETS,
  planDeletions,
  type UdpTargets,
  udpTargets,
  unionOfTargets,
} from "../conntrack/stale_flows.ts";
import { ExecError } from "../errors.ts";
import type { Conntrack } from "../kernel/conntrack.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { SyncOutcome } from "./family_runner.ts";
import { backoffMs } from "./bounded_frequency_runner.ts";

/** One look at the table. */
export interface FlowReconciliation {
  readonly family: IpFamily;
  readonly deleted: number;
  /** From before the dump to after the last deletion. */
  readonly durationMs: number;
}

/** What a {@linkcode StaleFlowReconciler} needs. */
export interface StaleFlowOptions {
  readonly family: IpFamily;
  readonly conntrack: Pick<Conntrack, "dump" | "delete">;
  /** The addresses that node ports are served on now. */
  readonly nodePortIps: () => Iterable<string>;
  readonly log: Logger;
  /** Hears of every look at the table that worked. */
  readonly observe: (reconciliation: FlowReconciliation) => void;
  /** Asks for a sync, of whatever: after it `afterSync` is called again. */
  readonly requestSync: () => void;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /** A number from 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number;
}

/** How long deletions may hold up the next sync. */
const DELETE_BUDGET_MS = 1_000;
/** How long all of a look may hold up the next sync. One that takes longer, or hangs, goes on beside it. */
const HOLD_MS = 2_000;
/** The wait before the rest of what did not fit into the budget. */
const CONTINUE_MS = 200;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/**
 * Level-triggered: looks at the whole table after a sync that wrote everything (so also after a start and after another program
 * removed our rules), or changed a UDP Service or its endpoints; and again until it worked. It decides between syncs what is
 * stale, never beside one: else a flow to an endpoint that the next sync adds would count as stale. A sync does not wait for programs
 * that take long: rules in force matter more than flows that are left over.
 */
export class StaleFlowReconciler {
  readonly #options: StaleFlowOptions;
  /** What there was to translate since the table was last known to agree. */
  #former: UdpTargets = NO_UDP_TARGETS;
  /** What the newest rules translate. */
  #targets: UdpTargets = NO_UDP_TARGETS;
  #needed = true;
  /** Counts what changed {@linkcode StaleFlowReconciler.#targets}. */
  #generation = 0;
  /** The look under way; it never rejects. */
  #running: Promise<void> | undefined;
  /** Resolves the wait of a look for the end of a sync. */
  #onBetweenSyncs: (() => void) | undefined;
  /** The look before took longer than syncs wait for it. */
  #isSlow = false;
  #failures = 0;
  #loggedProblem = "";
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  #stopped = false;

  constructor(options: StaleFlowOptions) {
    this.#options = options;
  }

  /** Never rejects, and never takes long, whatever becomes of the look. */
  async afterSync(outcome: SyncOutcome): Promise<void> {
    const { full, udpServicesChanged, udpEndpointsChanged, state } = outcome;
    if (full || udpServicesChanged || udpEndpointsChanged) {
      this.#former = this.#needed ? unionOfTargets(this.#former, this.#targets) : this.#targets;
      this.#targets = udpTargets(state);
      this.#needed = true;
      this.#generation++;
    }
    if (!this.#needed) return;
    if (this.#running === undefined) {
      clearTimeout(this.#retryTimer);
      if (isEmpty(this.#targets) && isEmpty(this.#former)) {
        this.#needed = false;
        return;
      }
      this.#running = this.#look().finally(() => this.#running = undefined);
      // One that was slow is not waited for again before another one was not.
      if (this.#isSlow) return;
    } else if (this.#onBetweenSyncs === undefined) {
      // It still reads.
      return;
    }
    this.#onBetweenSyncs?.();
    await this.#hold(this.#running);
  }

  /** Ends retries. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#retryTimer);
    this.#onBetweenSyncs?.();
  }

  /** Waits for a look, but not for long. */
  async #hold(look: Promise<void>): Promise<void> {
    this.#isSlow = await within(look.then(() => true), HOLD_MS) === null;
  }

  async #look(): Promise<void> {
    try {
      await this.#reconcile();
      this.#failures = 0;
      this.#loggedProblem = "";
    } catch (error) {
      if (!this.#stopped) this.#failed(error);
    }
  }

  /** Resolves when no sync is under way: at once while the sync that began the look waits for it. */
  async #betweenSyncs(): Promise<void> {
    if (!this.#isSlow || this.#stopped) return;
    const between = new Promise<void>((resolve) => {
      this.#onBetweenSyncs = resolve;
    });
    this.#options.requestSync();
    await between;
    this.#onBetweenSyncs = undefined;
  }

  async #reconcile(): Promise<void> {
    const { family, conntrack, log, observe, nowMs } = this.#options;
    const generation = this.#generation;
    const startMs = nowMs();
    const { text, complete } = await conntrack.dump(family);
    const dumpMs = nowMs() - startMs;
    await this.#betweenSyncs();
    if (this.#stopped) return;
    // Those of now: what syncs have added since the table was read is not stale, either.
    const nodePortIps = new Set(this.#options.nodePortIps());
    const rules: FlowRules = {
      targets: this.#targets,
      former: this.#former,
      isNodeAddress: (ip) => nodePortIps.has(ip),
    };
    const deletions = planDeletions(family, groupFlows(text), rules);
    const now = withinBudget(deletions, dumpMs);
    const deleted = await conntrack.delete(now.map(({ options }) => options));
    const durationMs = nowMs() - startMs;
    observe({ family, deleted, durationMs });
    if (deletions.length > 0) {
      log.info("Deleted stale UDP flows", {
        family,
        flows: deleted,
        found: deletions.reduce((total, { flows }) => total + flows, 0),
        took: `${Math.round(durationMs)}ms`,
      }, 1);
    }
    // What a sync changed meanwhile may have left flows that were not there when the table was read.
    if (complete && now.length === deletions.length && generation === this.#generation) {
      this.#needed = false;
      this.#former = NO_UDP_TARGETS;
    } else {
      this.#again(CONTINUE_MS);
    }
  }

  #failed(error: unknown): void {
    const { family, log, random } = this.#options;
    this.#failures++;
    const isMissing = error instanceof ExecError && error.isMissing();
    const problem = error instanceof ExecError ? `${error.ending} ${error.stderr}` : String(error);
    // Logged once: it is tried again for as long as the proxy runs.
    if (problem === this.#loggedProblem) {
      log.info("Still cannot look for stale UDP flows", { family, err: error }, 2);
    } else if (isMissing) {
      log.error("Stale UDP flows stay: the program conntrack is missing", error, { family });
    } else {
      log.error("Cannot look for stale UDP flows, will try again", error, { family });
    }
    this.#loggedProblem = problem;
    // What is not installed does not come by itself; the next sync that needs it looks again.
    if (isMissing) return;
    this.#again(backoffMs(this.#failures, { initialMs: FIRST_RETRY_MS, maxMs: MAX_RETRY_MS, random }));
  }

  #again(afterMs: number): void {
    if (this.#stopped) return;
    this.#retryTimer = setTimeout(this.#options.requestSync, afterMs);
  }
}

/** As many deletions as fit into the budget, at least one; each reads the table once, as the dump did. */
function withinBudget(deletions: readonly FlowDeletion[], dumpMs: number): readonly FlowDeletion[] {
  return deletions.slice(0, Math.max(1, Math.floor(DELETE_BUDGET_MS / Math.max(dumpMs, 1))));
}
