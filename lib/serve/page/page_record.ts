/**
 * What the status page needs to know of syncs besides the status: the states that rules were made of, and whether Services have changed.
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

/** Hears of every sync, and keeps what does not grow. */
export class PageRecord {
  /** Observes every sync. */
  readonly observer: SyncObserver = { synced: (outcome) => this.#takeSync(outcome), failed: () => {} };
  readonly #states = new Map<IpFamily, ProxyState>();
  readonly #quarantined = new Map<IpFamily, readonly QuarantinedService[]>();
  #generation = 0;

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

  #takeSync({ family, full, services, state, report }: SyncOutcome): void {
    this.#states.set(family, state);
    const isRequarantined = this.#takeQuarantine(family, report.quarantined);
    if (full || services.length > 0 || isRequarantined) this.#generation++;
  }

  /** True if Services went in or came out. */
  #takeQuarantine(family: IpFamily, list: readonly QuarantinedService[] | undefined): boolean {
    const before = this.#quarantined.get(family) ?? [];
    // The same list says nothing new.
    if (list === undefined || list === before || (list.length === 0 && before.length === 0)) return false;
    this.#quarantined.set(family, list);
    return true;
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
