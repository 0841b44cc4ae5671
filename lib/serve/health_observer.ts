/**
 * Lets the servers know how the syncs go.
 *
 * @module
 */
import { errorText } from "../observe/log.ts";
import type { SyncObserver } from "../sync/family_runner.ts";
import type { HealthState } from "./health_state.ts";
import type { ServiceHealthServers } from "./service_health.ts";

/** Passes every sync on to the health state and, if it succeeded, to the health check node ports. */
export function observeHealth(health: HealthState, serviceHealth: ServiceHealthServers): SyncObserver {
  return {
    begun: ({ family }) => health.queued(family),
    synced({ family, full, services, state }): void {
      health.synced(family);
      serviceHealth.update(family, state, full ? "all" : new Set(services));
    },
    failed: ({ family, error }) => health.failed(family, errorText(error)),
  };
}
