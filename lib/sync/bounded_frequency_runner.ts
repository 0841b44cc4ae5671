/**
 * Decides when a sync runs: at once after a quiet time, then at most once per minimum interval, at least once per
 * maximum interval, sooner after a failure, and never two at a time.
 *
 * @module
 */

/** Options of a {@linkcode BoundedFrequencyRunner}. */
export interface BoundedFrequencyRunnerOptions {
  /**
   * One run; resolves to false if there was nothing to do, which the next one need not wait for. A rejection makes the runner try
   * again after `retryMs`; reporting it is the run's own affair.
   */
  readonly run: () => Promise<boolean>;
  /** Time between the end of a run and the start of the next, in milliseconds. Capped at `maxIntervalMs`. */
  readonly minIntervalMs: number;
  /** Time after a run when the next one starts unasked, in milliseconds. */
  readonly maxIntervalMs: number;
  /** Milliseconds to wait after this many failures in a row. Capped at `maxIntervalMs`. */
  readonly retryMs: (failures: number) => number;
}

/**
 * Paces runs as kube-proxy's runner does since 1.34: requests coalesce, the interval counts from the end of a run, no
 * bursts. Differs: the wait after a failure is the caller's choice instead of the sync period, and a run that had nothing to do is
 * followed by no wait.
 */
export class BoundedFrequencyRunner {
  readonly #options: BoundedFrequencyRunnerOptions;
  #requested = false;
  #started = false;
  #failures = 0;
  #running: Promise<void> | undefined;
  #cooldown: ReturnType<typeof setTimeout> | undefined;
  #deadline: ReturnType<typeof setTimeout> | undefined;

  constructor(options: BoundedFrequencyRunnerOptions) {
    this.#options = options;
  }

  /** Asks for a run. Requests before `start()` or during a run are kept; several become one. */
  request(): void {
    this.#requested = true;
    this.#runIfAllowed();
  }

  /** Begins to serve requests. */
  start(): void {
    this.#started = true;
    this.#runIfAllowed();
  }

  /** Ends pacing and resolves when the run under way, if any, is over. Requests afterwards are ignored. */
  async stop(): Promise<void> {
    this.#started = false;
    clearTimeout(this.#cooldown);
    clearTimeout(this.#deadline);
    await this.#running;
  }

  #runIfAllowed(): void {
    if (!this.#started || !this.#requested || this.#running !== undefined || this.#cooldown !== undefined) {
      return;
    }
    this.#requested = false;
    clearTimeout(this.#deadline);
    this.#running = this.#runOnce();
  }

  async #runOnce(): Promise<void> {
    let hasWorked = true;
    try {
      hasWorked = await this.#options.run();
      this.#failures = 0;
    } catch {
      // The run has reported it; here it only means that the next one must come sooner.
      this.#failures++;
    }
    this.#running = undefined;
    if (this.#started) this.#scheduleNext(hasWorked);
  }

  #scheduleNext(hasWorked: boolean): void {
    const { minIntervalMs, maxIntervalMs, retryMs } = this.#options;
    const untilDeadline = this.#failures === 0
      ? maxIntervalMs
      : Math.min(retryMs(this.#failures), maxIntervalMs);
    this.#deadline = setTimeout(() => this.request(), untilDeadline);
    if (!hasWorked) return this.#runIfAllowed();
    this.#cooldown = setTimeout(() => {
      this.#cooldown = undefined;
      this.#runIfAllowed();
    }, Math.min(minIntervalMs, maxIntervalMs));
  }
}

/**
 * Doubles from `initialMs` to `maxMs` with the number of failures (1 or more), then adds up to 20 % of jitter.
 *
 * @param random a number from 0 (inclusive) to 1 (exclusive)
 */
export function backoffMs(
  failures: number,
  { initialMs, maxMs, random }: {
    readonly initialMs: number;
    readonly maxMs: number;
    readonly random: () => number;
  },
): number {
  return Math.min(initialMs * 2 ** (failures - 1), maxMs) * (1 + 0.2 * random());
}
