/**
 * Reports every sync to operators: what changed, how many rules, how long it took.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import type { ProxyMetrics } from "../observe/metrics.ts";
import { sumOf } from "../text/record.ts";
import type { ChangeObserver } from "./event_handlers.ts";
import type { SyncFailure, SyncObserver, SyncOutcome } from "./family_runner.ts";
import type { QuarantinedService } from "../backend/backend.ts";
import { categorizeEndpoints } from "../model/endpoint.ts";
import type { Changed, ProxyState, ServicePort } from "../model/state.ts";

/** How many Services a log line names; the count says how many there were. */
const NAMED_SERVICES = 10;
const IPTABLES_TABLES: readonly string[] = ["filter", "nat", "mangle"];

/**
 * Writes log lines and metrics. The first sync of a family is always logged, later ones at verbosity 2.
 *
 * @param unit of `sync_proxy_rules_no_local_endpoints_total`
 */
export function observeSyncs(
  log: Logger,
  metrics: ProxyMetrics,
  nowMs: () => number,
  unit: NoLocalEndpointsUnit,
): SyncObserver {
  const ready = new Set<IpFamily>();
  const noLocal = new Map<IpFamily, NoLocalEndpointsCount>();
  return {
    begun(): void {
      metrics.endpointChangesPending.set(0);
      metrics.serviceChangesPending.set(0);
    },
    synced(outcome: SyncOutcome): void {
      const { family, full, report, durationMs, services, triggerTimesMs, state } = outcome;
      metrics.observeSync(family, { full, durationMs, endMs: nowMs(), triggerTimesMs });
      if (report.isChangeRefused === true) metrics.countRefusal(family, false);
      for (const [table, count] of Object.entries(report.total)) {
        // Other counts of a mode are not rules of iptables.
        if (!IPTABLES_TABLES.includes(table)) continue;
        metrics.iptablesRules.set({ ip_family: family, table }, count);
        metrics.iptablesRulesLast.set({ ip_family: family, table }, report.written[table] ?? 0);
      }
      if (report.failedDeletions !== undefined) {
        metrics.nftablesCleanupFailures.inc({ ip_family: family }, report.failedDeletions);
        metrics.failedDeletions.inc({ ip_family: family }, report.failedDeletions);
      }
      const counts = noLocal.get(family) ?? new NoLocalEndpointsCount(unit);
      noLocal.set(family, counts);
      counts.update(state, full ? "all" : new Set(services));
      for (const [policy, count] of Object.entries(counts.total)) {
        metrics.noLocalEndpoints.set({ ip_family: family, traffic_policy: policy }, count);
      }
      const first = !ready.has(family);
      ready.add(family);
      log.info(first ? "First sync done, Services are served" : "Synced rules", {
        family,
        full,
        changed: full ? state.services.size : services.length,
        services: full ? undefined : services.slice(0, NAMED_SERVICES),
        endpoints: full ? state.endpointCount : undefined,
        // The metric takes removed chains off, as kube-proxy's does; below zero that says nothing.
        rulesWritten: Math.max(0, sumOf(report.written)),
        rules: sumOf(report.total),
        commands: report.commands,
        bytes: report.bytes,
        took: formatMs(durationMs),
        ...phaseTimes(report.phasesMs ?? {}),
      }, first ? 0 : 2);
    },
    failed({ family, full, error, durationMs }: SyncFailure): void {
      metrics.observeFailure(family, { full, durationMs });
      log.error("Sync failed, will write everything again", error, {
        family,
        full,
        took: formatMs(durationMs),
      });
    },
  };
}

/** Counts the events that come in. Both families share the series, as in kube-proxy. */
export function observeChanges(metrics: ProxyMetrics): ChangeObserver {
  return {
    service(_family, pendingServices): void {
      metrics.serviceChangesTotal.inc();
      metrics.serviceChangesPending.set(pendingServices);
    },
    endpointSlice(_family, pending): void {
      metrics.endpointChangesTotal.inc();
      if (pending) metrics.endpointChangesPending.inc();
    },
  };
}

/** All of the observers as one, called in this order. */
export function joinObservers(...observers: readonly SyncObserver[]): SyncObserver {
  return {
    begun: (sync) => observers.forEach((observer) => observer.begun?.(sync)),
    synced: (outcome) => observers.forEach((observer) => observer.synced(outcome)),
    failed: (failure) => observers.forEach((observer) => observer.failed(failure)),
  };
}

function phaseTimes(phasesMs: Readonly<Record<string, number>>): Record<string, string> {
  return Object.fromEntries(Object.entries(phasesMs).map(([phase, ms]) => [phase, formatMs(ms)]));
}

function formatMs(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(1)}ms` : `${(ms / 1000).toFixed(2)}s`;
}

/**
 * Reports the first sync of each of the families.
 *
 * @param onFirst called once for each of them; with `isLast` if all others have had theirs
 */
export function observeFirstSyncs(
  families: readonly IpFamily[],
  onFirst: (family: IpFamily, isLast: boolean) => void,
): SyncObserver {
  const waiting = new Set(families);
  return {
    synced: ({ family }) => {
      if (waiting.delete(family)) onFirst(family, waiting.size === 0);
    },
    failed: () => {},
  };
}

/** Dependencies of {@linkcode observeQuarantine}. */
export interface QuarantineOptions {
  readonly log: Logger;
  readonly metrics: Pick<ProxyMetrics, "quarantinedServices">;
  /** Called once for each Service, and again when its problem changes. */
  readonly onQuarantined: (quarantined: QuarantinedService & { readonly family: IpFamily }) => void;
}

/** Sets the metric of quarantined Services; logs and reports each that comes, and logs each that goes. */
export function observeQuarantine({ log, metrics, onQuarantined }: QuarantineOptions): SyncObserver {
  const known = new Map<IpFamily, ReadonlyMap<NamespacedName, string>>();
  const lists = new Map<IpFamily, readonly QuarantinedService[]>();
  return {
    synced({ family, report: { quarantined } }): void {
      // An unchanged list is skipped at once; it may hold thousands.
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

/** Unit of the count: ports one by one, or in IPVS mode Services, as kube-proxy does. */
export type NoLocalEndpointsUnit = "servicePorts" | "services";

/** Number of ports or Services that have endpoints, but none for this kind of traffic. */
export interface NoLocalEndpoints {
  readonly internal: number;
  readonly external: number;
}

const NONE: NoLocalEndpoints = { internal: 0, external: 0 };

/** Counts ports or Services without local endpoints for one family, looking only at changed Services. */
export class NoLocalEndpointsCount {
  readonly #unit: NoLocalEndpointsUnit;
  readonly #services = new Map<NamespacedName, NoLocalEndpoints>();
  #total = NONE;

  constructor(unit: NoLocalEndpointsUnit) {
    this.#unit = unit;
  }

  /** Takes the state that a sync has reached. */
  update(state: ProxyState, changed: Changed): void {
    if (changed === "all") {
      this.#services.clear();
      this.#total = NONE;
    }
    for (const name of changed === "all" ? state.services.keys() : changed) {
      this.#set(name, noLocalEndpoints(name, state, this.#unit));
    }
  }

  get total(): NoLocalEndpoints {
    return this.#total;
  }

  /** Updates the sum along: there may be thousands of Services, and this is done for each change. */
  #set(name: NamespacedName, counts: NoLocalEndpoints): void {
    const before = this.#services.get(name) ?? NONE;
    this.#total = {
      internal: this.#total.internal - before.internal + counts.internal,
      external: this.#total.external - before.external + counts.external,
    };
    if (counts.internal + counts.external > 0) this.#services.set(name, counts);
    else this.#services.delete(name);
  }
}

/**
 * Counts of one Service. In unit `services` it counts once, and for each of its policies as soon as one of its
 * addresses falls under it (kube-proxy 1.36, `syncEndpoint` of IPVS mode).
 */
function noLocalEndpoints(
  name: NamespacedName,
  state: ProxyState,
  unit: NoLocalEndpointsUnit,
): NoLocalEndpoints {
  let [internal, external] = [0, 0];
  for (const port of state.services.get(name) ?? []) {
    const { internalPolicyLocal, externalPolicyLocal } = port;
    if (!internalPolicyLocal && !externalPolicyLocal) continue;
    const endpoints = categorizeEndpoints(
      state.endpoints.get(name)?.get(port.key) ?? [],
      port,
      state.node,
    );
    if (!endpoints.hasAny || endpoints.local.length > 0) continue;
    if (unit === "services" && !internalPolicyLocal && !hasExternalAddress(port)) continue;
    internal += Number(internalPolicyLocal);
    external += Number(externalPolicyLocal);
  }
  return unit === "servicePorts"
    ? { internal, external }
    : { internal: Math.min(1, internal), external: Math.min(1, external) };
}

function hasExternalAddress({ externalIPs, loadBalancerVIPs, nodePort }: ServicePort): boolean {
  return externalIPs.length + loadBalancerVIPs.length > 0 || nodePort !== 0;
}
