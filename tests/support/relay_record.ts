/**
 * Context for portals of userspace mode in tests, and a record of their reports.
 *
 * @module
 */
import { CopyBuffers } from "../../lib/backend/userspace/forward/tcp_portal.ts";
import {
  type AllSessions,
  type RelayContext,
  type RelayRefusal,
  relaySessions,
  type SessionOptions,
} from "../../lib/backend/userspace/forward/relay.ts";

/** All reports of the portals. */
export class RelayRecord {
  readonly sessions: AllSessions;
  readonly refusals: RelayRefusal[] = [];
  readonly problems: string[] = [];

  constructor(
    { most = Infinity, ...options }: Omit<Partial<SessionOptions>, "most"> & { readonly most?: number } = {},
  ) {
    const onGreed = (message: string): void => void this.problems.push(message);
    this.sessions = relaySessions({ onGreed, most: { TCP: most, UDP: most }, ...options });
    for (const sessions of Object.values(this.sessions)) {
      const refuse = sessions.refuse.bind(sessions);
      sessions.refuse = (reason) => {
        this.refusals.push(reason);
        refuse(reason);
      };
    }
  }

  get open(): { readonly TCP: number; readonly UDP: number } {
    const { TCP, UDP } = this.sessions;
    return { TCP: TCP.counts.open, UDP: UDP.counts.open };
  }

  get bytes(): { readonly in: number; readonly out: number } {
    const { TCP, UDP } = this.sessions;
    return {
      in: TCP.counts.bytes.in + UDP.counts.bytes.in,
      out: TCP.counts.bytes.out + UDP.counts.bytes.out,
    };
  }

  get dialFailures(): number {
    return this.sessions.TCP.counts.dialFailures + this.sessions.UDP.counts.dialFailures;
  }

  get evictions(): number {
    return this.sessions.TCP.counts.evicted + this.sessions.UDP.counts.evicted;
  }
}

/** A context like the mode's, except that endpoints are not shuffled. */
export function relayContext(record: RelayRecord): RelayContext {
  return {
    sessions: record.sessions,
    buffers: new CopyBuffers(),
    onProblem: (problem, error) => void record.problems.push(`${problem}: ${error}`),
    nowMs: () => performance.now(),
    random: () => 0.999,
    udpIdleMs: 250,
  };
}
