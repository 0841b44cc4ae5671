/**
 * Raw API objects, for tests of the API server source.
 *
 * @module
 */
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import type { RawApiObject } from "./list_watch_server.ts";

/** An object of a flow case, as a server accepts it. */
export function raw(object: ObjectJson): RawApiObject {
  return object as unknown as RawApiObject;
}

/** A ClusterIP Service in `default`. */
export function rawService(
  name: string,
  { clusterIP = "10.96.0.1", labels = {}, port = 80 }: {
    clusterIP?: string;
    labels?: Readonly<Record<string, string>>;
    port?: number;
  } = {},
): RawApiObject {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: "default", labels },
    spec: {
      type: "ClusterIP",
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: ["IPv4"],
      ports: [{ name: "http", protocol: "TCP", port, targetPort: 8080 }],
    },
  } satisfies ObjectJson<"Service">;
}

/** A slice of a Service in `default`, named `<service>-x`. */
export function rawSlice(service: string, addresses: readonly string[]): RawApiObject {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${service}-x`,
      namespace: "default",
      labels: { "kubernetes.io/service-name": service },
    },
    addressType: "IPv4",
    ports: [{ name: "http", protocol: "TCP", port: 8080 }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  } satisfies ObjectJson<"EndpointSlice">;
}

/** The v1 Endpoints of a Service in `default`. */
export function rawEndpoints(service: string, ips: readonly string[]): RawApiObject {
  return {
    apiVersion: "v1",
    kind: "Endpoints",
    metadata: { name: service, namespace: "default" },
    subsets: [{
      addresses: ips.map((ip) => ({ ip })),
      ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    }],
  } satisfies ObjectJson<"Endpoints">;
}

/** A ServiceCIDR. */
export function rawServiceCidr(name: string, cidrs: readonly string[]): RawApiObject {
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "ServiceCIDR",
    metadata: { name },
    spec: { cidrs },
  } satisfies ObjectJson<"ServiceCIDR">;
}

/** A Node. */
export function rawNode(name: string, podCIDR = "10.244.0.0/24"): RawApiObject {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { "kubernetes.io/hostname": name } },
    spec: { podCIDR, podCIDRs: [podCIDR] },
    status: { addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
  } satisfies ObjectJson<"Node">;
}
