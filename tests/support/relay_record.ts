/**
 * What portals of userspace mode are given in tests, and what they tell.
 *
 * @module
 */
import { CopyBuffers } from "../../lib/backend/userspace/forward/copy_buffers.ts";
import {
  type RelayContext,
  type RelayObserver,
  type RelayRefusal,
  sessionPool,
  Sessions,
} from "../../lib/backend/userspace/forward/relay.ts";
import type { PortalProtocol } from "../../lib/backend/userspace/plan/ruleset.ts";

/** Everything that was told. */
export class RelayRecord implements RelayObserver {
  readonly open = { TCP: 0, UDP: 0 };
  readonly bytes = { in: 0, out: 0 };
  readonly refusals: RelayRefusal[] = [];
  readonly problems: string[] = [];
  dialFailures = 0;
  evictions = 0;

  opened(protocol: PortalProtocol): void {
    this.open[protocol]++;
  }

  closed(protocol: PortalProtocol): void {
    this.open[protocol]--;
  }

  refused(_: PortalProtocol, reason: RelayRefusal): void {
    this.refusals.push(reason);
  }

  evicted(): void {
    this.evictions++;
  }

  dialFailed(): void {
    this.dialFailures++;
  }

  forwarded(_: PortalProtocol, direction: "in" | "out", bytes: number): void {
    this.bytes[direction] += bytes;
  }
}

/** As the mode makes it, but that chance leaves endpoints in their order. */
export function relayContext(record: RelayRecord): RelayContext {
  return {
    observer: record,
    buffers: new CopyBuffers(),
    sessions: new Sessions(
      sessionPool(record, (message) => void record.problems.push(message)),
      "TCP",
      Infinity,
    ),
    onProblem: (problem, error) => void record.problems.push(`${problem}: ${error}`),
    nowMs: () => performance.now(),
    random: () => 0.999,
    udpIdleMs: 250,
  };
}
