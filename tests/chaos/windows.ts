/**
 * Which failed connections a fault accounts for: a fault declares what it may cost and for how long, and nothing else may fail.
 *
 * @module
 */

/** What happened from when to when, in milliseconds of one clock. */
interface Span {
  readonly what: string;
  readonly fromMs: number;
  readonly untilMs: number;
}

/** A connection that failed. */
export interface FailedConnection {
  /** When it began. */
  readonly atMs: number;
  /** Who connected to what, and how it ended. */
  readonly what: string;
}

/** What one kind of damage has cost. */
export interface Outage {
  readonly connections: number;
  /** The longest time from such a damage to the beginning of a connection that failed by it. */
  readonly longestMs: number;
}

/** A failure is a little older than what caused it: it was under way. */
const UNDER_WAY_MS = 250;

/** The record of a run. */
export class Windows {
  readonly #damages: Span[] = [];
  readonly #hindrances: Span[] = [];
  readonly #standstills: Span[] = [];
  /** When the rules were seen to be whole, by the number of the damage. */
  readonly #ends = new Map<number, number>();

  /** @param repairMs how long a damage may cost connections, unless something hinders its repair */
  constructor(readonly repairMs: number) {}

  /** Rules of kproxy's were taken away by another process. */
  damaged(span: Span): void {
    this.#damages.push(span);
  }

  /** kproxy could not do its work: it was not there, or its tools failed. By itself that costs no connection. */
  hindered(span: Span): void {
    this.#hindrances.push(span);
  }

  /** The machine stood still, and what was under way took so much longer. */
  stoodStill(span: Span): void {
    this.#standstills.push(span);
    this.#hindrances.push(span);
  }

  /** The rules were seen to be whole again: no damage of before costs anything any more. */
  repaired(atMs: number): void {
    for (const [i, damage] of this.#damages.entries()) {
      const end = this.#end(damage);
      if (damage.untilMs <= atMs && end > atMs) this.#ends.set(i, atMs);
    }
  }

  /** The damages that may have cost this connection; empty if none may. */
  causes(failed: FailedConnection): readonly string[] {
    return this.#causes(failed).map(({ what }) => what);
  }

  /** By kind of damage, how many of these connections it cost, and for how long after it: the last damage before one has cost it. */
  outages(failed: readonly FailedConnection[]): ReadonlyMap<string, Outage> {
    const outages = new Map<string, Outage>();
    for (const one of failed) {
      const cause = this.#causes(one).toSorted((left, right) => left.fromMs - right.fromMs).at(-1);
      if (cause === undefined) continue;
      const { connections = 0, longestMs = 0 } = outages.get(cause.what) ?? {};
      const afterMs = Math.max(0, one.atMs - cause.fromMs);
      outages.set(cause.what, { connections: connections + 1, longestMs: Math.max(longestMs, afterMs) });
    }
    return outages;
  }

  #causes({ atMs }: FailedConnection): readonly Span[] {
    return this.#damages.filter((damage, i) =>
      damage.fromMs - UNDER_WAY_MS - this.#stoodMs(atMs, damage.fromMs) <= atMs &&
      atMs <= (this.#ends.get(i) ?? this.#end(damage))
    );
  }

  /** For how long of this time the machine stood still. */
  #stoodMs(fromMs: number, untilMs: number): number {
    return this.#standstills.reduce(
      (sum, one) => sum + Math.max(0, Math.min(one.untilMs, untilMs) - Math.max(one.fromMs, fromMs)),
      0,
    );
  }

  /** Milliseconds that all windows so far have been open, together. */
  get openMs(): number {
    const spans = this.#damages.map((damage, i) => [damage.fromMs, this.#ends.get(i) ?? this.#end(damage)]);
    let [open, last] = [0, -Infinity];
    for (const [from, until] of spans.sort(([a = 0], [b = 0]) => a - b) as [number, number][]) {
      open += Math.max(0, until - Math.max(from, last));
      last = Math.max(last, until);
    }
    return open;
  }

  /** The time for the repair begins when nothing hinders it any more. */
  #end({ fromMs, untilMs }: Span): number {
    let end = untilMs + this.repairMs;
    for (;;) {
      const later = this.#hindrances.filter((other) =>
        other.fromMs <= end && other.untilMs >= fromMs && other.untilMs + this.repairMs > end
      );
      if (later.length === 0) return end;
      end = Math.max(...later.map((other) => other.untilMs)) + this.repairMs;
    }
  }
}
