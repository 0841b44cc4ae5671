/**
 * What the lives of a process and both IP families have in common in userspace mode: how many sessions there are and what was counted,
 * and the portals that one life leaves to the next.
 *
 * @module
 */
import { within } from "../../../kernel/clock.ts";
import { DescriptorAllowance } from "../../../kernel/descriptors.ts";
import type { Shared } from "../../node/afterlife.ts";
import { type RelayObserver, type RelayRefusal, SessionLimit } from "../forward/relay.ts";
import type { PortalProtocol } from "../plan/ruleset.ts";
import { LingeringPortals } from "./portals.ts";

/** How long portals of a former life serve on where the next life has not taken them: by then no rule leads there any more. */
const LINGER_MS = 60_000;
/** How long the end of the process waits for the sessions that are there. */
const DRAIN_MS = 10_000;

/** What was counted of one protocol. */
export interface RelayCounts {
  open: number;
  opened: number;
  dialFailures: number;
  readonly bytes: { in: number; out: number };
  readonly refused: Record<RelayRefusal, number>;
}

function noCounts(): RelayCounts {
  return {
    open: 0,
    opened: 0,
    dialFailures: 0,
    bytes: { in: 0, out: 0 },
    refused: { descriptors: 0, limit: 0, "no endpoint": 0, "no answer": 0 },
  };
}

/** One for the process. */
export class SharedPortals implements Shared, RelayObserver {
  readonly lingering = new LingeringPortals();
  readonly sessions = new SessionLimit(Infinity, new DescriptorAllowance());
  readonly counts: Readonly<Record<PortalProtocol, RelayCounts>> = { TCP: noCounts(), UDP: noCounts() };
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** A life has ended and left its portals. */
  left(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.lingering.close(), LINGER_MS);
  }

  async end(signal: AbortSignal): Promise<void> {
    clearTimeout(this.#timer);
    // Clients that come meanwhile are served, too: rules lead here until the next process has its own.
    await within(this.sessions.none(), DRAIN_MS, signal);
    await this.lingering.close();
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

  dialFailed(protocol: PortalProtocol): void {
    this.counts[protocol].dialFailures++;
  }

  forwarded(protocol: PortalProtocol, direction: "in" | "out", bytes: number): void {
    this.counts[protocol].bytes[direction] += bytes;
  }
}
