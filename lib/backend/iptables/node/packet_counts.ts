/**
 * What iptables mode's own rules have counted.
 *
 * @module
 */

/** `-A KUBE-FORWARD -m conntrack --ctstate INVALID -c PACKETS BYTES -j DROP`, as a listing with counters has it. */
const INVALID_DROP_REGEXP = /^-A .*--ctstate INVALID .*-c (\d+) \d+ .*-j DROP$/m;

/** Packets that the rule against invalid ones has dropped since it was written; null if there is no such rule. */
export function invalidDropped(listing: string): number | null {
  const packets = INVALID_DROP_REGEXP.exec(listing)?.[1];
  return packets === undefined ? null : Number(packets);
}

/** A count that goes on where a rule's own begins anew, because the rule was written again. */
export class LastingCount {
  #seen = 0;
  #before = 0;

  /** @param now what the rule says */
  take(now: number): number {
    if (now < this.#seen) this.#before += this.#seen;
    this.#seen = now;
    return this.#before + now;
  }
}
