/**
 * Decides when a snapshot is written: some time after a change, never more often than its size allows, and at the end.
 *
 * @module
 */
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../observe/log.ts";

/** What a {@linkcode SnapshotSaver} needs. */
export interface SnapshotSaverOptions {
  /** For the log. */
  readonly path: string;
  /** Writes what there is now. @returns the size in bytes */
  readonly save: () => Promise<number>;
  /** Told of every failure. */
  readonly onFailure: () => void;
  readonly log: Logger;
  readonly clock: Clock;
  /** Least time between two writes, and from a change to its write, in milliseconds. @default {10000} */
  readonly intervalMs?: number;
}

const INTERVAL_MS = 10_000;
/** A node of a large, busy cluster must not wear out its disk: 16 MiB are written about once a minute. */
const BYTES_PER_SECOND = 256 * 1024;

/** See the module. A write that failed is tried again after the same time. */
export class SnapshotSaver {
  readonly #options: SnapshotSaverOptions;
  #isDue = false;
  #wake: () => void = () => {};
  #pauseMs: number;
  #hasFailed = false;

  constructor(options: SnapshotSaverOptions) {
    this.#options = options;
    this.#pauseMs = options.intervalMs ?? INTERVAL_MS;
  }

  /** What should be on disk is different now. */
  changed(): void {
    this.#isDue = true;
    this.#wake();
  }

  /** Writes until `signal` aborts, then what is left to write, and resolves. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (!this.#isDue) await this.#untilDue(signal);
      await this.#options.clock.sleep(this.#pauseMs, signal);
      if (this.#isDue) await this.#save();
    }
    if (this.#isDue) await this.#save();
  }

  #untilDue(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        signal.removeEventListener("abort", this.#wake);
        resolve();
      };
      signal.addEventListener("abort", this.#wake, { once: true });
      if (signal.aborted) this.#wake();
    });
  }

  async #save(): Promise<void> {
    const { save, log, path, intervalMs = INTERVAL_MS, clock } = this.#options;
    // Taken back before the await: what changes meanwhile may be missing in the file.
    this.#isDue = false;
    const startMs = clock.nowMs();
    try {
      const bytes = await save();
      this.#pauseMs = Math.max(intervalMs, bytes / BYTES_PER_SECOND * 1000);
      const took = `${(clock.nowMs() - startMs).toFixed(1)}ms`;
      log.info("Snapshot written", { file: path, bytes, took }, this.#hasFailed ? 0 : 2);
      this.#hasFailed = false;
    } catch (error) {
      this.#isDue = true;
      this.#options.onFailure();
      const reason = error instanceof Error ? error.message : String(error);
      if (this.#hasFailed) log.info("Still cannot write the snapshot", { file: path, reason }, 2);
      else log.warn("Cannot write the snapshot, going on without", { file: path, reason });
      this.#hasFailed = true;
    }
  }
}
