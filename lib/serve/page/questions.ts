/**
 * What the status page asks about single Services and packets. Who answers looks at rules, which no server does by itself.
 *
 * @module
 */
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import type { UnservedOfService } from "../../model/destination_claims.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import type { ProxyState } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";

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
  readonly record: PageRecordView;
  readonly node: () => NodeObject | null;
  readonly serviceCidrs: () => readonly string[];
  /** Loads what answers, which takes memory. */
  readonly questions: () => Promise<Questions>;
}

/** What the page reads of its record. */
export type PageRecordView = Pick<
  import("./page_record.ts").PageRecord,
  "states" | "generation" | "quarantined" | "changedSince" | "changesSince"
>;
