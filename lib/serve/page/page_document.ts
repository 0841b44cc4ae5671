/**
 * What the status page asks for beside the status: where, the shapes of the answers, and what they are made from. They belong to the page of the same release;
 * programs ask for what `status_document` describes.
 *
 * @module
 */
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import type { UnservedOfService } from "../../model/destination_claims.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import type { ProxyState } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import type { API_VERSION } from "../status/status_document.ts";

/** The page, and the folder of the files it is made of. */
export const PAGE_PATH = "/kproxy/";
export const FILES_PATH = "/kproxy/page/";

/** What the page asks for. Of one Service and of a packet, `lib/inspect/page` makes the answers. */
export const SERVICES_PATH = "/kproxy/v1/services";
export const SERVICE_PATH = "/kproxy/v1/service";
export const TRACE_PATH = "/kproxy/v1/trace";

/** By which addresses a Service is reached, the farthest of them. */
export type ServiceKind = "cluster IP" | "external IP" | "node port" | "load balancer";

/** A Service in the list. */
export type ServiceRow = readonly [
  service: NamespacedName,
  kind: ServiceKind,
  /** Cluster IPs first. */
  addresses: readonly string[],
  /** `http 80/TCP, 53/UDP :30053`. */
  ports: string,
  /** How many endpoints get traffic on this node, and how many there are: of the port and family with the fewest in use. */
  used: number,
  total: number,
  /** `""`: none. */
  problem: string,
];

/** What {@linkcode SERVICES_PATH} answers. */
export interface ServicesDocument {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "ServiceRows";
  /** In no order. */
  readonly rows: readonly ServiceRow[];
}

/** What there is to look at, as it is at the moment. */
export interface Held {
  /** See `StatusRecord`: not to be kept. */
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
  readonly node: () => NodeObject | null;
  readonly serviceCidrs: () => readonly string[];
  /** Loads what answers, which takes memory. */
  readonly questions: () => Promise<Questions>;
}
