/**
 * What is forwarded, counted.
 *
 * @module
 */
import type { PortalProtocol } from "../plan/ruleset.ts";
import type { RelayObserver, RelayRefusal } from "./relay.ts";

/** What was counted of one protocol. */
export interface RelayCounts {
  open: number;
  opened: number;
  dialFailures: number;
  evicted: number;
  readonly bytes: { in: number; out: number };
  readonly refused: Record<RelayRefusal, number>;
}

/** Of all protocols. */
export type AllRelayCounts = Readonly<Record<PortalProtocol, RelayCounts>>;

function noCounts(): RelayCounts {
  return {
    open: 0,
    opened: 0,
    dialFailures: 0,
    evicted: 0,
    bytes: { in: 0, out: 0 },
    refused: { descriptors: 0, limit: 0, "no endpoint": 0, "no answer": 0, "not redirected": 0 },
  };
}

/** Counts since it was made. */
export class RelayTally implements RelayObserver {
  readonly counts: AllRelayCounts = { TCP: noCounts(), UDP: noCounts() };

  /** How many sessions came, and how many went. */
  get changes(): number {
    return Object.values(this.counts).reduce((sum, { open, opened }) => sum + 2 * opened - open, 0);
  }

  opened(protocol: PortalProtocol): void {
    this.counts[protocol].open++;
    this.counts[protocol].opened++;
  }

  closed(protocol: PortalProtocol): void {
    this.counts[protocol].open--;
  }

  refused(protocol: PortalProtocol, reason: RelayRefusal): void {
    this.counts[protocol].refused[reason]++;
  }

  evicted(protocol: PortalProtocol): void {
    this.counts[protocol].evicted++;
  }

  dialFailed(protocol: PortalProtocol): void {
    this.counts[protocol].dialFailures++;
  }

  forwarded(protocol: PortalProtocol, direction: "in" | "out", bytes: number): void {
    this.counts[protocol].bytes[direction] += bytes;
  }
}
