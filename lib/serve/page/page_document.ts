/**
 * The shapes of what the status page asks for beside the status, and where it asks. They belong to the page of the same release;
 * programs ask for what `status_document` describes.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
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
