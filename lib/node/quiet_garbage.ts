/**
 * What a start and changes leave on the heap, collected when nothing waits for it.
 *
 * @module
 */
import { type Clock, systemClock } from "../kernel/clock.ts";
import type { IpFamily } from "../model/objects.ts";
import { observeFirstSyncs } from "../sync/sync_observer.ts";
import type { SyncObserver } from "../sync/family_runner.ts";

/** By then the first syncs have let go of what they worked with. */
const AFTER_START_MS = 1_000;
/** A series of changes goes on within that time, or is over: it is more than changes wait for one another by default. */
const QUIET_MS = 3_000;
/** So many times as long as a collection took there is none: a thousandth of the time, and rarer where the heap is large. */
const REST_PER_PAUSE = 1_000;
/** But for so long at least, and no longer: on a machine with too much to do it takes long, however little there is. */
const MIN_REST_MS = 10_000;
const MAX_REST_MS = 300_000;

/**
 * Collects all garbage once, a second after every family has had its first sync: lists, plans and texts of a whole cluster. After that
 * it does so once no family has had a sync for three seconds, if there was one: changes leave some megabytes, most of them room that
 * the engine made for short-lived objects. The engine would collect some time later, in the middle of a change, and keep that room.
 *
 * Nothing is collected while a sync is under way or to be tried again, and nothing for a thousand times as long as it took the last time.
 *
 * @param signal keeps it from being done later on
 */
export function collectInQuiet(
  families: readonly IpFamily[],
  signal: AbortSignal,
  clock: Clock = systemClock,
  collect: () => void = collectGarbage,
): SyncObserver {
  const quiet = new QuietTimes(signal, clock, collect);
  const first = observeFirstSyncs(families, (_family, isLast) => isLast && quiet.started());
  return {
    begun: ({ family }) => quiet.begun(family),
    synced: (outcome) => {
      first.synced(outcome);
      quiet.synced(outcome.family);
    },
    // What is still unwritten comes with the next sync.
    failed: () => {},
  };
}

class QuietTimes {
  readonly #signal: AbortSignal;
  readonly #clock: Clock;
  readonly #collectGarbage: () => void;
  /** With a sync that has not come to a good end. */
  readonly #busy = new Set<IpFamily>();
  #hasStarted = false;
  /** True if there was a sync since the last collection. */
  #hasGarbage = false;
  #isWaiting = false;
  #quietFromMs = 0;
  #restUntilMs = 0;

  constructor(signal: AbortSignal, clock: Clock, collect: () => void) {
    this.#signal = signal;
    this.#clock = clock;
    this.#collectGarbage = collect;
  }

  started(): void {
    void this.#clock.sleep(AFTER_START_MS, this.#signal).then(() => {
      if (this.#signal.aborted) return;
      this.#hasStarted = true;
      this.#collect();
    });
  }

  begun(family: IpFamily): void {
    this.#busy.add(family);
  }

  synced(family: IpFamily): void {
    this.#busy.delete(family);
    this.#quietFromMs = this.#clock.nowMs();
    this.#hasGarbage = true;
    if (this.#hasStarted && !this.#isWaiting) void this.#wait();
  }

  /** Collects when no change waits, and again as long as there were changes meanwhile. */
  async #wait(): Promise<void> {
    this.#isWaiting = true;
    while (this.#hasGarbage && this.#busy.size === 0 && !this.#signal.aborted) {
      const dueMs = Math.max(this.#quietFromMs + QUIET_MS, this.#restUntilMs);
      const leftMs = dueMs - this.#clock.nowMs();
      if (leftMs > 0) await this.#clock.sleep(leftMs, this.#signal);
      else this.#collect();
    }
    this.#isWaiting = false;
  }

  #collect(): void {
    this.#hasGarbage = false;
    const startMs = this.#clock.nowMs();
    this.#collectGarbage();
    const endMs = this.#clock.nowMs();
    const restMs = Math.min(Math.max(MIN_REST_MS, REST_PER_PAUSE * (endMs - startMs)), MAX_REST_MS);
    this.#restUntilMs = endMs + restMs;
  }
}

interface EngineGlobals {
  /** There with the engine's flag `--expose-gc`. */
  readonly gc?: (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;
}

/** Gives back all memory of this thread that nothing needs; without the flag that allows it, nothing happens. */
export function collectGarbage(): void {
  (globalThis as EngineGlobals).gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
}
