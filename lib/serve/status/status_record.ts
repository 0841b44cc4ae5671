/**
 * Records what happens in one proxy server, for the status: a few numbers for each sync, and lists that do not
 * grow.
 *
 * @module
 */
import type { QuarantinedService } from "../../backend/backend.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { SyncObserver } from "../../sync/reconcile.ts";
import type { DriftObserver } from "../../sync/rule_checks.ts";
import { Recent } from "./recent.ts";
import type { DriftStatus, FamilyStatus, QuarantineStatus } from "./status_document.ts";
import { SyncRecord } from "./sync_record.ts";

const DRIFTS = 20;
/** There may be thousands in quarantine. */
const SHOWN_QUARANTINED = 100;

interface Quarantined {
  readonly problem: string;
  readonly sinceMs: number;
}

type Drift = DriftStatus["recent"][number];

/** See the module. */
export class StatusRecord {
  /** Observes every sync. */
  readonly observer: SyncObserver;
  /** Observes damaged rules. */
  readonly drift: DriftObserver;
  readonly #nowMs: () => number;
  readonly #families: ReadonlyMap<IpFamily, SyncRecord>;
  readonly #quarantined = new Map<IpFamily, ReadonlyMap<NamespacedName, Quarantined>>();
  readonly #lists = new Map<IpFamily, readonly QuarantinedService[]>();
  readonly #drifts = new Recent<Drift>(DRIFTS);
  #found = 0;
  #repaired = 0;

  /** @param nowMs milliseconds since the epoch */
  constructor(families: readonly IpFamily[], nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#families = new Map([...families].sort().map((family) => [family, new SyncRecord()]));
    this.observer = {
      synced: (outcome) => {
        const timeMs = nowMs();
        this.#families.get(outcome.family)?.synced(outcome, timeMs);
        const { quarantined } = outcome.report;
        if (quarantined !== undefined) this.#takeQuarantine(outcome.family, quarantined, timeMs);
      },
      failed: (failure) => this.#families.get(failure.family)?.failed(failure, nowMs()),
    };
    this.drift = {
      found: (family, damaged) => this.#takeDrift(family, damaged),
      repaired: (family, lasts) => this.#settleDrift(family, lasts),
    };
  }

  get families(): Readonly<Partial<Record<IpFamily, FamilyStatus>>> {
    return Object.fromEntries([...this.#families].map(([family, record]) => [family, record.status]));
  }

  get quarantine(): QuarantineStatus {
    const services: QuarantineStatus["services"][number][] = [];
    let count = 0;
    for (const [family, quarantined] of this.#quarantined) {
      count += quarantined.size;
      for (const [service, { problem, sinceMs }] of quarantined) {
        if (services.length >= SHOWN_QUARANTINED) break;
        services.push({ family, service, problem, since: new Date(sinceMs).toISOString() });
      }
    }
    return { count, services };
  }

  get drifts(): DriftStatus {
    return { found: this.#found, repaired: this.#repaired, recent: this.#drifts.items };
  }

  #takeQuarantine(family: IpFamily, list: readonly QuarantinedService[], timeMs: number): void {
    // The same list says nothing new.
    if (this.#lists.get(family) === list) return;
    this.#lists.set(family, list);
    const before = this.#quarantined.get(family);
    this.#quarantined.set(
      family,
      new Map(list.map(({ service, problem }) => {
        const known = before?.get(service);
        return [service, known?.problem === problem ? known : { problem, sinceMs: timeMs }];
      })),
    );
  }

  #takeDrift(family: IpFamily, damaged: readonly string[]): void {
    this.#found++;
    this.#drifts.add({
      family,
      time: new Date(this.#nowMs()).toISOString(),
      damaged: [...damaged],
      outcome: "pending",
    });
  }

  #settleDrift(family: IpFamily, lasts: boolean): void {
    if (!lasts) this.#repaired++;
    const outcome = lasts ? "lasting" : "repaired";
    this.#drifts.replaceNewest(
      (drift) => drift.family === family && drift.outcome === "pending",
      (drift) => ({ ...drift, outcome }),
    );
  }
}
