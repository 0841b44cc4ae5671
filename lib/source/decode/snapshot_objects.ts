/**
 * Objects as a snapshot keeps them: in the form of the Kubernetes API, without what a reader fills in by itself. So a snapshot
 * is read, and checked, by the same rules as an answer of the API server, whichever release wrote it.
 *
 * @module
 */
import type {
  DiscoveryV1EndpointPort,
  V1Endpoint,
  V1EndpointSlice,
  V1ForNode,
  V1ForZone,
  V1LoadBalancerIngress,
  V1Node,
  V1NodeAddress,
  V1Service,
  V1ServiceCIDR,
  V1ServicePort,
  V1Taint,
} from "@kubernetes/client-node";
import type {
  ApiObject,
  EndpointSlice,
  LoadBalancerIngress,
  NodeObject,
  Service,
  ServiceCidr,
  ServicePortSpec,
  SliceEndpoint,
  SlicePort,
} from "../../model/objects.ts";
import type { JsonPart } from "./api_json.ts";
import { decodeEndpointSlice, decodeNode, decodeService, decodeServiceCidr } from "./decode.ts";
import { asObject, DecodeError, notAmong, objectAt, textAt } from "./decode_values.ts";

/** Slices that stand for v1 Endpoints have names that no object may have; theirs is kept here. */
const ENDPOINTS_ANNOTATION = "kproxy/endpoints-slice";
const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
const KINDS = ["Service", "EndpointSlice", "Node", "ServiceCIDR"] as const;

/** What a snapshot keeps of an object of the API. */
export type KeptObject =
  | JsonPart<V1Service>
  | JsonPart<V1EndpointSlice>
  | JsonPart<V1Node>
  | JsonPart<V1ServiceCIDR>;

/** The object of the API that {@linkcode decodeSnapshotObject} reads the same object from, once it is text: what is undefined goes. */
export function encodeSnapshotObject(object: ApiObject): KeptObject {
  switch (object.kind) {
    case "Service":
      return encodeService(object);
    case "EndpointSlice":
      return encodeSlice(object);
    case "Node":
      return encodeNode(object);
    case "ServiceCIDR":
      return encodeServiceCidr(object);
  }
}

/**
 * Reads what {@linkcode encodeSnapshotObject} made.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeSnapshotObject(raw: unknown): ApiObject {
  const object = asObject<V1EndpointSlice>(raw);
  const { kind } = object;
  if (kind === "Service") return decodeService(raw);
  if (kind === "Node") return decodeNode(raw);
  if (kind === "ServiceCIDR") return decodeServiceCidr(raw);
  if (kind !== "EndpointSlice") throw notAmong("kind", KINDS, kind);
  const slice = decodeEndpointSlice(raw);
  const written = textAt(
    objectAt(objectAt(object, "metadata"), "annotations"),
    ENDPOINTS_ANNOTATION,
  );
  if (written === "") return slice;
  const prefix = `endpoints/${slice.serviceName}/`;
  if (
    slice.name !== slice.serviceName || !written.startsWith(prefix) ||
    !/^IPv[46](\/\d+)?$/.test(written.slice(prefix.length))
  ) {
    throw new DecodeError(
      `metadata.annotations["${ENDPOINTS_ANNOTATION}"]`,
      `must begin with ${prefix}IPv4 or IPv6`,
    );
  }
  return { ...slice, name: written };
}

/** Field by field: what is spread into an object is not compared with the model. */
function encodeService(service: Service): JsonPart<V1Service> {
  const { createdAtSeconds, loadBalancerIngress: ingress, affinityTimeoutSeconds: timeoutSeconds } = service;
  return {
    kind: service.kind,
    metadata: {
      namespace: service.namespace,
      name: service.name,
      uid: service.uid === "" ? undefined : service.uid,
      creationTimestamp: createdAtSeconds === null ? undefined : isoTime(createdAtSeconds * 1000),
      annotations: service.annotations,
    },
    spec: {
      type: service.type,
      clusterIP: service.clusterIP,
      clusterIPs: service.clusterIPs,
      ipFamilies: service.ipFamilies,
      ports: service.ports.map(encodeServicePort),
      externalIPs: service.externalIPs,
      loadBalancerSourceRanges: service.loadBalancerSourceRanges,
      sessionAffinity: service.sessionAffinity,
      externalTrafficPolicy: service.externalTrafficPolicy,
      internalTrafficPolicy: service.internalTrafficPolicy,
      healthCheckNodePort: service.healthCheckNodePort,
      sessionAffinityConfig: { clientIP: { timeoutSeconds } },
    },
    status: ingress.length === 0 ? undefined : { loadBalancer: { ingress: ingress.map(encodeIngress) } },
  };
}

function encodeServicePort({ name, protocol, port, nodePort }: ServicePortSpec): JsonPart<V1ServicePort> {
  return { name, protocol, port, nodePort };
}

function encodeIngress({ ip, ipMode }: LoadBalancerIngress): JsonPart<V1LoadBalancerIngress> {
  return { ip, ipMode };
}

function encodeSlice(slice: EndpointSlice): JsonPart<V1EndpointSlice> {
  const { kind, namespace, name, addressType, serviceName, lastChangeTriggerTimeMs: timeMs } = slice;
  const ofEndpoints = name.startsWith("endpoints/");
  const annotations = {
    ...(timeMs === null ? {} : { [TRIGGER_TIME_ANNOTATION]: isoTime(timeMs) }),
    ...(ofEndpoints ? { [ENDPOINTS_ANNOTATION]: name } : {}),
  };
  const labels = { "kubernetes.io/service-name": serviceName };
  return {
    kind,
    metadata: { namespace, name: ofEndpoints ? serviceName : name, labels, annotations },
    addressType,
    ports: slice.ports.map(encodeSlicePort),
    endpoints: slice.endpoints.map(encodeEndpoint),
  };
}

function encodeSlicePort({ name, port, protocol }: SlicePort): JsonPart<DiscoveryV1EndpointPort> {
  return { name, port, protocol };
}

/** There may be 100,000 of them and more: what goes without saying is not said. */
function encodeEndpoint(endpoint: SliceEndpoint): JsonPart<V1Endpoint> {
  const { address, nodeName, ready, serving, terminating, zoneHints, nodeHints } = endpoint;
  const isPlain = ready && serving && !terminating;
  const isHinted = zoneHints.length > 0 || nodeHints.length > 0;
  return {
    addresses: [address],
    nodeName: nodeName === "" ? undefined : nodeName,
    conditions: isPlain ? undefined : { ready, serving, terminating },
    hints: isHinted ? { forZones: zoneHints.map(nameOnly), forNodes: nodeHints.map(nameOnly) } : undefined,
  };
}

function nameOnly(name: string): JsonPart<V1ForNode & V1ForZone> {
  return { name };
}

function encodeNode(node: NodeObject): JsonPart<V1Node> {
  const { kind, name, labels, podCIDRs, addresses, taintKeys, deleting } = node;
  return {
    kind,
    metadata: { name, labels, deletionTimestamp: deleting ? isoTime(0) : undefined },
    spec: { podCIDRs, taints: taintKeys.map(encodeTaint) },
    status: { addresses: addresses.map(encodeNodeAddress) },
  };
}

function encodeTaint(key: string): JsonPart<V1Taint> {
  return { key };
}

function encodeNodeAddress({ type, address }: NodeObject["addresses"][number]): JsonPart<V1NodeAddress> {
  return { type, address };
}

function encodeServiceCidr({ kind, name, cidrs }: ServiceCidr): JsonPart<V1ServiceCIDR> {
  return { kind, metadata: { name }, spec: { cidrs } };
}

function isoTime(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
