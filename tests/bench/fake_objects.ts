/**
 * The cluster of the benchmark: Services of one TCP port, each with one slice of endpoints, by number.
 *
 * @module
 */

import type { V1ObjectMeta } from "@kubernetes/client-node";
import type { Json, ObjectJson } from "../../lib/source/decode/api_json.ts";

/** How large the cluster is. */
export interface ClusterSize {
  readonly services: number;
  /** Per Service. */
  readonly endpoints: number;
}

const CLUSTER_IPS = (10 << 24 | 96 << 16) >>> 0;
const POD_IPS = (10 << 24 | 128 << 16) >>> 0;
/** A touched endpoint's address moves by this much, out of the range of all others. */
const TOUCHED_SHIFT = 4_000_000;
const CREATED = "2026-11-01T00:00:00Z";
/** Port of every Service, and of every endpoint. */
export const SERVICE_PORT = 80;
export const ENDPOINT_PORT = 8080;
const NODE = "node-1";

/** Name of the node the proxy runs on; it hosts none of the endpoints. */
export const NODE_NAME = NODE;

function ipText(value: number): string {
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join(".");
}

/** Address of a Service. */
export function clusterIp(index: number): string {
  return ipText(CLUSTER_IPS + 10 + index);
}

/** Address of one endpoint; the first one of a touched Service has another one. */
export function endpointIp(index: number, endpoint: number, size: ClusterSize, touched: boolean): string {
  const shift = touched && endpoint === 0 ? TOUCHED_SHIFT : 0;
  return ipText(POD_IPS + index * size.endpoints + endpoint + shift);
}

function metadata(name: string, resourceVersion: number): Json<V1ObjectMeta> {
  return {
    name,
    namespace: "default",
    uid: name,
    resourceVersion: String(resourceVersion),
    creationTimestamp: CREATED,
  };
}

/** A Service as the API writes it. */
export function serviceObject(index: number, resourceVersion: number): ObjectJson<"Service"> {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadata(`svc-${index}`, resourceVersion),
    spec: {
      type: "ClusterIP",
      clusterIP: clusterIp(index),
      clusterIPs: [clusterIp(index)],
      ipFamilies: ["IPv4"],
      ipFamilyPolicy: "SingleStack",
      sessionAffinity: "None",
      internalTrafficPolicy: "Cluster",
      selector: { app: `app-${index}` },
      ports: [{ name: "http", protocol: "TCP", port: SERVICE_PORT, targetPort: ENDPOINT_PORT }],
    },
    status: { loadBalancer: {} },
  };
}

/** The slice of a Service as the API writes it. */
export function sliceObject(
  index: number,
  resourceVersion: number,
  size: ClusterSize,
  touched: boolean,
): ObjectJson<"EndpointSlice"> {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      ...metadata(`svc-${index}-abc`, resourceVersion),
      generateName: `svc-${index}-`,
      labels: { "kubernetes.io/service-name": `svc-${index}` },
    },
    addressType: "IPv4",
    ports: [{ name: "http", protocol: "TCP", port: ENDPOINT_PORT }],
    endpoints: Array.from({ length: size.endpoints }, (_, endpoint) => ({
      addresses: [endpointIp(index, endpoint, size, touched)],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: `other-node-${endpoint % 100}`,
    })),
  };
}

/** The node the proxy runs on. */
export function nodeObject(): ObjectJson<"Node"> {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: NODE,
      uid: NODE,
      resourceVersion: "5",
      creationTimestamp: CREATED,
      labels: { "kubernetes.io/hostname": NODE },
    },
    spec: { podCIDR: "10.244.0.0/24", podCIDRs: ["10.244.0.0/24"] },
    status: { addresses: [{ type: "InternalIP", address: "10.200.0.1" }] },
  };
}
