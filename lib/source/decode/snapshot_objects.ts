/**
 * Objects as a snapshot keeps them: in the form of the Kubernetes API, without what a reader fills in by itself. So a snapshot
 * is read, and checked, by the same rules as an answer of the API server, whichever release wrote it.
 *
 * @module
 */
import type { ApiObject, EndpointSlice, NodeObject, Service, SliceEndpoint } from "../../model/objects.ts";
import { decodeEndpointSlice, decodeNode, decodeService, decodeServiceCidr } from "./decode.ts";
import { asObject, DecodeError, notAmong, objectAt, type RawObject, textAt } from "./decode_values.ts";

/** Slices that stand for v1 Endpoints have names that no object may have; theirs is kept here. */
const ENDPOINTS_ANNOTATION = "kproxy/endpoints-slice";
const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
const KINDS = ["Service", "EndpointSlice", "Node", "ServiceCIDR"] as const;

/** The object of the API that {@linkcode decodeSnapshotObject} reads the same object from. */
export function encodeSnapshotObject(object: ApiObject): RawObject {
  switch (object.kind) {
    case "Service":
      return encodeService(object);
    case "EndpointSlice":
      return encodeSlice(object);
    case "Node":
      return encodeNode(object);
    case "ServiceCIDR":
      return { kind: object.kind, metadata: { name: object.name }, spec: { cidrs: object.cidrs } };
  }
}

/**
 * Reads what {@linkcode encodeSnapshotObject} made.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeSnapshotObject(raw: unknown): ApiObject {
  const { kind } = asObject(raw);
  if (kind === "Service") return decodeService(raw);
  if (kind === "Node") return decodeNode(raw);
  if (kind === "ServiceCIDR") return decodeServiceCidr(raw);
  if (kind !== "EndpointSlice") throw notAmong("kind", KINDS, kind);
  const slice = decodeEndpointSlice(raw);
  const written = textAt(
    objectAt(objectAt(raw as RawObject, "metadata"), "annotations"),
    ENDPOINTS_ANNOTATION,
  );
  if (written === "") return slice;
  const prefix = `endpoints/${slice.name}/`;
  if (!written.startsWith(prefix) || !/^IPv[46](\/\d+)?$/.test(written.slice(prefix.length))) {
    throw new DecodeError(
      `metadata.annotations["${ENDPOINTS_ANNOTATION}"]`,
      `must begin with ${prefix}IPv4 or IPv6`,
    );
  }
  return { ...slice, name: written };
}

function encodeService(service: Service): RawObject {
  const { kind, namespace, name, uid, createdAtSeconds, annotations, loadBalancerIngress, ...fields } =
    service;
  const { affinityTimeoutSeconds: timeoutSeconds, ...spec } = fields;
  return {
    kind,
    metadata: {
      namespace,
      name,
      ...(uid === "" ? {} : { uid }),
      ...(createdAtSeconds === null
        ? {}
        : { creationTimestamp: new Date(createdAtSeconds * 1000).toISOString() }),
      ...(annotations === undefined ? {} : { annotations }),
    },
    spec: { ...spec, sessionAffinityConfig: { clientIP: { timeoutSeconds } } },
    ...(loadBalancerIngress.length === 0
      ? {}
      : { status: { loadBalancer: { ingress: loadBalancerIngress } } }),
  };
}

function encodeSlice(slice: EndpointSlice): RawObject {
  const { kind, namespace, name, addressType, serviceName, ports, lastChangeTriggerTimeMs: timeMs } = slice;
  const ofEndpoints = name.startsWith("endpoints/");
  const annotations = {
    ...(timeMs === null ? {} : { [TRIGGER_TIME_ANNOTATION]: new Date(timeMs).toISOString() }),
    ...(ofEndpoints ? { [ENDPOINTS_ANNOTATION]: name } : {}),
  };
  const labels = { "kubernetes.io/service-name": serviceName };
  return {
    kind,
    metadata: { namespace, name: ofEndpoints ? serviceName : name, labels, annotations },
    addressType,
    ports,
    endpoints: slice.endpoints.map(encodeEndpoint),
  };
}

/** There may be 100,000 of them and more: what goes without saying is not said. */
function encodeEndpoint(endpoint: SliceEndpoint): RawObject {
  const { addresses, nodeName, ready, serving, terminating, zoneHints, nodeHints } = endpoint;
  const raw: Record<string, unknown> = { addresses };
  if (nodeName !== "") raw["nodeName"] = nodeName;
  if (!ready || !serving || terminating) raw["conditions"] = { ready, serving, terminating };
  if (zoneHints.length > 0 || nodeHints.length > 0) {
    raw["hints"] = { forZones: zoneHints.map(nameOnly), forNodes: nodeHints.map(nameOnly) };
  }
  return raw;
}

function nameOnly(name: string): RawObject {
  return { name };
}

function encodeNode({ kind, name, labels, podCIDRs, addresses, taintKeys, deleting }: NodeObject): RawObject {
  return {
    kind,
    metadata: { name, labels, ...(deleting ? { deletionTimestamp: new Date(0).toISOString() } : {}) },
    spec: { podCIDRs, taints: taintKeys.map((key) => ({ key })) },
    status: { addresses },
  };
}
