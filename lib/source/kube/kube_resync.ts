/**
 * Delivers what is known once more, now and then, in batches small enough not to hold up real changes.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";
import type { KubeStore } from "./kube_store.ts";
import type { SourceEvent, SourceSink } from "../source.ts";

/** Settings of {@linkcode resync}. */
export interface ResyncOptions {
  readonly periodMs: number;
  readonly clock: Clock;
  readonly sink: SourceSink;
}

/** API objects in one batch. */
const BATCH_SIZE = 200;
const PAUSE_MS = 20;

/** Every `periodMs`, until `signal` aborts, delivers each object of the stores as an update from itself to itself. */
export async function resync(
  stores: readonly KubeStore[],
  { periodMs, clock, sink }: ResyncOptions,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    // Timers hold 31 bits.
    await clock.sleep(Math.min(periodMs, 2 ** 31 - 1), signal);
    for (const store of stores) {
      const identities = store.identities();
      for (let start = 0; start < identities.length && !signal.aborted; start += BATCH_SIZE) {
        // Looked up only now: an object may have changed or gone since the batch before.
        const objects = identities.slice(start, start + BATCH_SIZE).flatMap((identity) =>
          store.objectsAt(identity)
        );
        const events = objects.map((object): SourceEvent => ({ type: "update", old: object, object }));
        if (events.length > 0) sink.events(events);
        await clock.sleep(PAUSE_MS, signal);
      }
    }
  }
}
