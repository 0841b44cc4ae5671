/**
 * The program's own servers with the status page, and a state like that of sync loops behind it: the test adds and removes
 * Services, and no kernel is changed.
 *
 * @module
 */
import type { ApplyReport } from "../../lib/backend/backend.ts";
import type { ProxyMode } from "../../lib/config/types.ts";
import { SyncError } from "../../lib/errors.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { UnservedOfService } from "../../lib/model/destination_claims.ts";
import type { Rejection } from "../../lib/source/source.ts";
import type { ApiObject, IpFamily, NodeObject } from "../../lib/model/objects.ts";
import { loadQuestions } from "../../lib/node/wiring.ts";
import { joinObservers } from "../../lib/sync/sync_observer.ts";
import { type Served, serving } from "./status_server.ts";
import { syncOutcome } from "./sync_outcome.ts";

const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
const NODE = "worker-3";

/** The node's own Node. */
export const PAGE_NODE: NodeObject = {
  kind: "Node",
  name: NODE,
  labels: { "topology.kubernetes.io/zone": "west-1a" },
  podCIDRs: ["10.244.3.0/24"],
  addresses: [{ type: "InternalIP", address: "192.168.50.13" }],
  taintKeys: [],
  deleting: false,
};

/** External IP policy of the node. */
export const PAGE_POLICY = { externalIPs: ["203.0.113.0/24"], loadBalancerIPs: null, nodeAddresses: null };

/** A sync, as reported to the page. */
export interface PageSync extends Partial<ApplyReport> {
  readonly durationMs?: number;
  /** Time since the change was made. */
  readonly latencyMs?: number;
  readonly full?: boolean;
}

/** A served page. */
export interface ServedPage extends Served {
  /** Address, `http://127.0.0.1:PORT/kproxy/`. */
  readonly url: string;
  /** Adds objects, or removes them, and reports a sync of the changes. */
  change(objects: readonly ApiObject[], sync?: PageSync): void;
  remove(objects: readonly ApiObject[], sync?: PageSync): void;
  fail(family: IpFamily, message: string): void;
  /** Moves the clock of recorded times on by so many milliseconds. */
  pass(ms: number): void;
}

/** Options of the server. */
export interface ServingPageOptions {
  readonly objects?: readonly ApiObject[];
  /** Objects that the source refuses. */
  readonly refusals?: readonly Rejection[];
  readonly mode?: ProxyMode;
  /** Initial lag of the recorded clock behind real time. */
  readonly sinceMs?: number;
  /** @default {0, a free one} */
  readonly port?: number;
}

/** Serves the page of a node with these objects. */
export async function servingPage(
  work: (page: ServedPage) => Promise<void>,
  { objects = [], refusals = [], mode = "nftables", sinceMs = 0, port = 0 }: ServingPageOptions = {},
): Promise<void> {
  let behindMs = sinceMs;
  const nowMs = (): number => Date.now() - behindMs;
  const lanes = new Lanes();
  await serving(async (served) => {
    const observer = joinObservers(served.servers.observer, served.record.observer);
    const tell = (sync: PageSync): void => {
      for (const outcome of lanes.outcomes(sync, nowMs())) observer.synced(outcome);
    };
    const page: ServedPage = {
      ...served,
      url: `http://${served.address}/kproxy/`,
      change(changed, sync = {}) {
        lanes.take(changed, false);
        tell(sync);
      },
      remove(gone, sync = {}) {
        lanes.take(gone, true);
        tell(sync);
      },
      fail(family, message) {
        const error = new SyncError(mode, "apply", message);
        observer.failed({ family, full: false, durationMs: 12, error });
      },
      pass: (ms) => void (behindMs = Math.max(0, behindMs - ms)),
    };
    served.servers.setNode(PAGE_NODE);
    page.change([PAGE_NODE, ...objects], { full: true, durationMs: 38 });
    await work(page);
  }, {
    objects,
    refusals,
    unserved: () => lanes.unserved(),
    mode,
    families: FAMILIES,
    node: NODE,
    nowMs,
    config: { clusterCIDR: "10.244.0.0/16", metricsBindAddress: `127.0.0.1:${port}` },
    page: { node: () => PAGE_NODE, serviceCidrs: () => [], questions: loadQuestions },
  });
}

/** Trackers of both families. */
class Lanes {
  readonly #trackers = FAMILIES.map((family) =>
    new ChangeTracker({
      family,
      node: { name: NODE, zone: "west-1a" },
      externalIPPolicy: PAGE_POLICY,
      report: () => {},
      onUnserved: () => {},
    })
  );
  readonly #services = new Map<string, ApiObject>();

  take(objects: readonly ApiObject[], isGone: boolean): void {
    for (const object of objects) {
      for (const tracker of this.#trackers) {
        if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, isGone);
        if (object.kind !== "Service") continue;
        const known = this.#services.get(`${object.namespace}/${object.name}`);
        const old = known?.kind === "Service" ? known : undefined;
        tracker.updateService(old, isGone ? undefined : object);
      }
      if (object.kind === "Service") this.#services.set(`${object.namespace}/${object.name}`, object);
    }
  }

  unserved(): readonly UnservedOfService[] {
    return this.#trackers.flatMap((tracker) => [...tracker.unserved()]);
  }

  outcomes({ full = false, durationMs = 4.2, latencyMs, ...report }: PageSync, nowMs: number) {
    return this.#trackers.flatMap((tracker) => {
      const { state, updatedServices } = tracker.checkout();
      if (!full && updatedServices.size === 0 && report.quarantined === undefined) return [];
      const isLarge = state.family === "IPv4";
      const outcome = syncOutcome(state.family, {
        written: { elements: full ? state.endpointCount : updatedServices.size * 3 },
        total: { chains: state.services.size, elements: state.endpointCount },
        phasesMs: { plan: durationMs * 0.3, apply: durationMs * 0.6 },
        ...report,
      });
      return [{
        ...outcome,
        full,
        state,
        durationMs: isLarge ? durationMs : durationMs * 0.6,
        services: full ? [] : [...updatedServices],
        triggerTimesMs: latencyMs === undefined ? [] : [nowMs - latencyMs],
      }];
    });
  }
}
