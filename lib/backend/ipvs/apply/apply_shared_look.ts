/**
 * One look for both families: device, sets and IPVS table are listed for both at once, and what one family writes changes nothing of the
 * other's. So a family that waits for its turn while the other one looks need not look again.
 *
 * @module
 */
import { FAMILIES, type IpFamily } from "../../../model/objects.ts";
import type { ObservedOwn } from "./apply_fresh.ts";

/** Writing may take long where there is much, and others may have changed something meanwhile. */
const SHARED_MS = 10_000;

interface Look {
  /** Whom it is kept for. */
  readonly family: IpFamily;
  readonly own: ObservedOwn;
  readonly atMs: number;
}

/** Knows who waits, and keeps the last look for them. Times are of one clock. */
export class SharedLook {
  readonly #waiting = new Set<IpFamily>();
  /** For a family that waits, or whose turn it is. */
  #kept: Look | null = null;

  /** A sync of the family waits for its turn. */
  wait(family: IpFamily): void {
    this.#waiting.add(family);
  }

  /** Its turn has come; what was seen for the other family grows old meanwhile. */
  begin(family: IpFamily): void {
    this.#waiting.delete(family);
    if (this.#kept?.family !== family) this.#kept = null;
  }

  /** What the other family saw while this one waited, once; null: somebody has to look. */
  take(family: IpFamily, nowMs: number): ObservedOwn | null {
    const kept = this.#kept;
    if (kept?.family !== family) return null;
    this.#kept = null;
    return nowMs - kept.atMs <= SHARED_MS ? kept.own : null;
  }

  /** Keeps a look of the family whose turn it is. */
  keep(own: ObservedOwn, family: IpFamily, atMs: number): void {
    const other = FAMILIES.find((one) => one !== family && this.#waiting.has(one));
    this.#kept = other === undefined ? null : { family: other, own, atMs };
  }

  /** Its turn is over; what it saw stays for the other one, what it did not take goes. */
  end(family: IpFamily): void {
    if (this.#kept?.family === family) this.#kept = null;
  }

  /** Somebody changed what is of either family. */
  forget(): void {
    this.#kept = null;
  }
}
