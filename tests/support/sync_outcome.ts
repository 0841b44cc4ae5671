/**
 * A successful sync, for observers of syncs.
 *
 * @module
 */
import type { ApplyReport } from "../../lib/backend/backend.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { SyncOutcome } from "../../lib/sync/family_runner.ts";

/** A full sync of a node without Services. */
export function syncOutcome(family: IpFamily, report: Partial<ApplyReport> = {}): SyncOutcome {
  return {
    family,
    full: true,
    report: { commands: 1, bytes: 1, written: {}, total: {}, ...report },
    durationMs: 1,
    services: [],
    triggerTimesMs: [],
    udpEndpointsChanged: false,
    udpServicesChanged: false,
    state: {
      family,
      node: { name: "node-a", zone: "" },
      services: new Map(),
      endpoints: new Map(),
      endpointCount: 0,
      tooLarge: new Map(),
    },
  };
}
