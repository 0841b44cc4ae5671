/**
 * Tells operators which Services the kernel does not take, and when it takes them again.
 *
 * @module
 */
import type { QuarantinedService } from "../backend/backend.ts";
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { ProxyMetrics } from "../observe/metrics.ts";
import type { SyncObserver } from "./reconcile.ts";

/** What {@linkcode observeQuarantine} needs. */
export interface QuarantineOptions {
  readonly log: Logger;
  readonly metrics: Pick<ProxyMetrics, "quarantinedServices">;
  /** Hears of each Service once, and again when the problem is another one. */
  readonly onQuarantined: (quarantined: QuarantinedService & { readonly family: IpFamily }) => void;
}

/** A metric of how many there are; a log line and a call for each that comes, a log line for each that goes. */
export function observeQuarantine({ log, metrics, onQuarantined }: QuarantineOptions): SyncObserver {
  const known = new Map<IpFamily, ReadonlyMap<NamespacedName, string>>();
  const lists = new Map<IpFamily, readonly QuarantinedService[]>();
  return {
    synced({ family, report: { quarantined } }): void {
      // The same list says nothing new; there may be thousands.
      if (quarantined === undefined || lists.get(family) === quarantined) return;
      lists.set(family, quarantined);
      const before = known.get(family) ?? new Map<NamespacedName, string>();
      const now = new Map(quarantined.map(({ service, problem }) => [service, problem]));
      known.set(family, now);
      metrics.quarantinedServices.set({ ip_family: family }, now.size);
      for (const [service, problem] of now) {
        if (before.get(service) === problem) continue;
        log.error("Service is quarantined, a part of it is refused", problem, { family, service });
        onQuarantined({ family, service, problem });
      }
      for (const service of before.keys()) {
        if (!now.has(service)) log.info("Service is no longer quarantined", { family, service });
      }
    },
    failed(): void {},
  };
}
