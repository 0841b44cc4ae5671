/**
 * Requests of the status page beside the status: paths, shapes of the answers, and what they are made from. They belong to the page of the same release;
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

/** Paths that the page requests. Answers about one Service and about a packet are made by `lib/inspect/page`. */
export const SERVICES_PATH = "/kproxy/v1/services";
export const SERVICE_PATH = "/kproxy/v1/service";
export const TRACE_PATH = "/kproxy/v1/trace";

/** The most external kind of address by which a Service is reached. */
export type ServiceKind = "cluster IP" | "external IP" | "node port" | "load balancer";

/** A Service in the list. */
export type ServiceRow = readonly [
  service: NamespacedName,
  kind: ServiceKind,
  /** Cluster IPs first. */
  addresses: readonly string[],
  /** `http 80/TCP, 53/UDP :30053`. */
  ports: string,
  /** Endpoints that get traffic on this node, and all endpoints: of the port and family with the fewest in use. */
  used: number,
  total: number,
  /** Problem of the Service; `""` if there is none. */
  problem: string,
];

/** Answer at {@linkcode SERVICES_PATH}. */
export interface ServicesDocument {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "ServiceRows";
  /** In no order. */
  readonly rows: readonly ServiceRow[];
}

/** Present state of the proxy, from which answers are made. */
export interface Held {
  /** See `StatusRecord`: not to be kept. */
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
  readonly mode: ProxyMode;
  /** The configuration in force, of that mode. */
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  /** The node's own Node; null if there is none of its name. */
  readonly node: NodeObject | null;
  /** Networks of ServiceCIDRs. */
  readonly serviceCidrs: readonly string[];
  /** Addresses of the machine's interfaces, of both families. */
  readonly addresses: readonly DeviceAddress[];
  readonly quarantined: ReadonlyMap<NamespacedName, string>;
  /** Services with destinations that are not served. */
  readonly unserved: readonly UnservedOfService[];
  /** The ports on which kproxy itself takes traffic for Services; null: it takes none. */
  readonly portals: NodePortals | null;
}

/** Answers for the page, all without starting a program. */
export interface Questions {
  /** One Service as `kproxy service get -o json` shows it, with the rules that kproxy wants; null: there is none. */
  service(held: Held, name: NamespacedName): Promise<unknown>;
  /**
   * The path of a packet through the rules that kproxy wants, as `kproxy trace --no-live -o json` shows it.
   *
   * @throws {UsageError} if source or destination is none, or too much would have to be looked at
   */
  trace(held: Held, from: string, to: string): Promise<unknown>;
}

/** Data of one proxy server for the page. */
export interface PageFacts {
  readonly node: () => NodeObject | null;
  readonly serviceCidrs: () => readonly string[];
  /** Loads the code that makes the answers, which takes memory. */
  readonly questions: () => Promise<Questions>;
}
