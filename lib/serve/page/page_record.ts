/**
 * What the status page needs to know of syncs besides the status: the states that rules were made of, and which Services were changed
 * when.
 *
 * @module
 */
import type { IpFamily, NamespacedName, NodeObject } from "../../model/objects.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import type { UnservedOfService } from "../../model/destination_claims.ts";
import type { NodePortals } from "../../model/portals.ts";
import type { ProxyState } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import type { QuarantinedService } from "../../backend/backend.ts";
import type { SyncObserver, SyncOutcome } from "../../sync/family_runner.ts";
import { keepLast } from "../status/status_record.ts";

/** A client that missed so many syncs gets everything. */
const REMEMBERED_SYNCS = 64;
/** A sync of more Services counts as one of all. */
const REMEMBERED_SERVICES = 500;

interface Update {
  readonly generation: number;
  /** Null: all. */
  readonly services: readonly NamespacedName[] | null;
}

/** Hears of every sync, and keeps what does not grow. */
export class PageRecord {
  /** Observes every sync. */
  readonly observer: SyncObserver = { synced: (outcome) => this.#takeSync(outcome), failed: () => {} };
  readonly #states = new Map<IpFamily, ProxyState>();
  readonly #quarantined = new Map<IpFamily, readonly QuarantinedService[]>();
  readonly #updates: Update[] = [];
  #generation = 0;
  #oldestKnown = 0;

  /**
   * By family, of those that were synced once. They belong to the sync loops, which change them in place: they are looked at for a
   * turn of the event loop and not kept.
   */
  get states(): ReadonlyMap<IpFamily, ProxyState> {
    return this.#states;
  }

  /** Grows whenever Services may look different. */
  get generation(): number {
    return this.#generation;
  }

  /** Services whose rules the kernel has refused, and why. */
  get quarantined(): ReadonlyMap<NamespacedName, string> {
    const all = [...this.#quarantined.values()].flat();
    return new Map(all.map(({ service, problem }) => [service, problem]));
  }

  /** Which Services may look different since that generation; null: all. */
  changedSince(generation: number): ReadonlySet<NamespacedName> | null {
    if (!(generation >= this.#oldestKnown && generation <= this.#generation)) return null;
    const names = new Set<NamespacedName>();
    for (const update of this.#updates) {
      if (update.generation <= generation) continue;
      if (update.services === null) return null;
      for (const name of update.services) names.add(name);
    }
    return names;
  }

  #takeSync({ family, full, services, state, report }: SyncOutcome): void {
    this.#states.set(family, state);
    const names = [...services, ...this.#takeQuarantine(family, report.quarantined)];
    if (full || names.length > 0) this.#remember(full || names.length > REMEMBERED_SERVICES ? null : names);
  }

  #remember(services: readonly NamespacedName[] | null): void {
    keepLast(this.#updates, { generation: ++this.#generation, services }, REMEMBERED_SYNCS);
    this.#oldestKnown = Math.max(0, this.#generation - REMEMBERED_SYNCS);
  }

  /** @returns the Services that went in or came out */
  #takeQuarantine(
    family: IpFamily,
    list: readonly QuarantinedService[] | undefined,
  ): readonly NamespacedName[] {
    const before = this.#quarantined.get(family) ?? [];
    // The same list says nothing new.
    if (list === undefined || list === before || (list.length === 0 && before.length === 0)) return [];
    this.#quarantined.set(family, list);
    return [...before, ...list].map(({ service }) => service);
  }
}

/** What there is to look at, as it is at the moment. */
export interface Held {
  /** See `PageRecord`: not to be kept. */
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
  readonly mode: ProxyMode;
  /** The one in force, of that mode. */
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  /** Null if there is no Node of that name. */
  readonly node: NodeObject | null;
  /** Networks of ServiceCIDRs. */
  readonly serviceCidrs: readonly string[];
  /** The machine's own, of both families. */
  readonly addresses: readonly DeviceAddress[];
  readonly quarantined: ReadonlyMap<NamespacedName, string>;
  /** Services that do not get all that they ask for. */
  readonly unserved: readonly UnservedOfService[];
  /** The ports on which kproxy itself takes traffic for Services; null: it takes none. */
  readonly portals: NodePortals | null;
}

/** Answers for the page, all without starting a program. */
export interface Questions {
  /** One Service as `kproxy service get -o json` shows it, with the rules that kproxy wants; null: there is none. */
  service(held: Held, name: NamespacedName): Promise<unknown>;
  /**
   * The way of a packet through the rules that kproxy wants, as `kproxy trace --no-live -o json` shows it.
   *
   * @throws {UsageError} if source or destination is none, or too much would have to be looked at
   */
  trace(held: Held, from: string, to: string): Promise<unknown>;
}

/** What one proxy server has for the page. */
export interface PageFacts {
  readonly record: PageRecord;
  readonly node: () => NodeObject | null;
  readonly serviceCidrs: () => readonly string[];
  /** Loads what answers, which takes memory. */
  readonly questions: () => Promise<Questions>;
}
