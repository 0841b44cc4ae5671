/**
 * Which resources of the API server are watched, with which selectors.
 *
 * @module
 */
import type { ApiObject, NamespacedName } from "../../model/objects.ts";
import { decodeEndpointSlice, decodeNode, decodeService, decodeServiceCidr } from "../decode/decode.ts";
import type { WatchedModels } from "../decode/api_json.ts";
import type { ResourceKind } from "../source.ts";

/** One resource of the API and how its objects are read. */
export interface WatchedResource {
  readonly kind: ResourceKind;
  /** Kind of the objects; items of a list do not carry it. */
  readonly objectKind: keyof WatchedModels;
  /** API version of the objects and of their lists. */
  readonly apiVersion: string;
  /** e.g. `/api/v1/services`. */
  readonly path: string;
  /** Selectors to try in order; the next one is used when the server refuses one (400). */
  readonly selectors: readonly Selector[];
  /** How many times as long as other watches a watch of it may be silent before it is opened once more. @default {1} */
  readonly patience?: number;
  /** Decodes an API object. @throws {DecodeError} */
  readonly decode: (raw: unknown) => ApiObject;
}

/** Query parameters that select objects. */
export type Selector = Readonly<{ labelSelector?: string; fieldSelector?: string }>;

/** Services of another proxy and headless ones are left out: kube-proxy 1.36's selectors, then those it had before. */
export const SERVICES: WatchedResource = {
  kind: "services",
  objectKind: "Service",
  apiVersion: "v1",
  path: "/api/v1/services",
  selectors: [
    { labelSelector: "!service.kubernetes.io/service-proxy-name", fieldSelector: "spec.clusterIP!=None" },
    { labelSelector: "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name" },
  ],
  decode: (raw) => decodeService(raw),
};

const NOT_HEADLESS: readonly Selector[] = [{ labelSelector: "!service.kubernetes.io/headless" }];

/** EndpointSlices of Services that are not headless. */
export const ENDPOINT_SLICES: WatchedResource = {
  kind: "endpointslices",
  objectKind: "EndpointSlice",
  apiVersion: "discovery.k8s.io/v1",
  path: "/apis/discovery.k8s.io/v1/endpointslices",
  selectors: NOT_HEADLESS,
  decode: (raw) => decodeEndpointSlice(raw),
};

/**
 * ServiceCIDRs hardly ever change, some servers send no bookmarks of what does not, and readiness does not depend on them, as it does on
 * the Node: their connection need not be looked after as often as the others'.
 */
const CIDR_PATIENCE = 4;

/** All ServiceCIDRs. Servers before 1.33 have none, and roles from before then do not grant them. */
export const SERVICE_CIDRS: WatchedResource = {
  kind: "servicecidrs",
  objectKind: "ServiceCIDR",
  apiVersion: "networking.k8s.io/v1",
  path: "/apis/networking.k8s.io/v1/servicecidrs",
  selectors: [{}],
  patience: CIDR_PATIENCE,
  decode: (raw) => decodeServiceCidr(raw),
};

/**
 * The part of a resource that one Service is made of: the Service itself, or what belongs to it. Within its namespace, by selectors, so
 * that an account that may list them all may list these.
 */
export function resourceOfService(resource: WatchedResource, service: NamespacedName): WatchedResource {
  const [namespace = "", name = ""] = service.split("/");
  const at = resource.path.lastIndexOf("/");
  const isSlice = resource.objectKind === "EndpointSlice";
  const own: Selector = isSlice
    ? { labelSelector: `kubernetes.io/service-name=${name}` }
    : { fieldSelector: `metadata.name=${name}` };
  const joined = (...parts: readonly (string | undefined)[]): string =>
    parts.filter((part) => part !== undefined).join(",");
  return {
    ...resource,
    path: `${resource.path.slice(0, at)}/namespaces/${encodeURIComponent(namespace)}${
      resource.path.slice(at)
    }`,
    selectors: resource.selectors.map(({ labelSelector, fieldSelector }) => ({
      ...(labelSelector === undefined && !isSlice
        ? {}
        : { labelSelector: joined(labelSelector, own.labelSelector) }),
      ...(fieldSelector === undefined && isSlice
        ? {}
        : { fieldSelector: joined(fieldSelector, own.fieldSelector) }),
    })),
  };
}

/** The Node of that name. */
export function nodeResource(nodeName: string): WatchedResource {
  return {
    kind: "nodes",
    objectKind: "Node",
    apiVersion: "v1",
    path: "/api/v1/nodes",
    selectors: [{ fieldSelector: `metadata.name=${nodeName}` }],
    decode: (raw) => decodeNode(raw),
  };
}
