/**
 * API objects as JSON, from a few words: what flow cases are made of. The same objects can be written to a manifest file.
 *
 * @module
 */

import type {
  DiscoveryV1EndpointPort,
  V1Endpoint,
  V1EndpointConditions,
  V1LoadBalancerIngress,
  V1ServicePort,
  V1ServiceSpec,
} from "@kubernetes/client-node";
import type { Json, ObjectJson } from "../../lib/source/decode/api_json.ts";

/** An object as the API server would send it. */
export type ApiJson = ObjectJson;

/** Fields of a Service's spec that a case may set as they are. */
type PlainFields = Pick<
  Json<V1ServiceSpec>,
  | "clusterIP"
  | "clusterIPs"
  | "ipFamilies"
  | "externalIPs"
  | "loadBalancerSourceRanges"
  | "healthCheckNodePort"
  | "sessionAffinityConfig"
>;

/** The parts of a Service spec a case names; the rest is what the API server would fill in. */
export interface ServiceSpec extends PlainFields {
  /** `metadata.creationTimestamp`. */
  readonly createdAt?: string;
  readonly type?: "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName";
  /** `name:port[:nodePort][/PROTOCOL]`; an empty name is an unnamed port. */
  readonly ports: readonly string[];
  readonly externalTrafficPolicy?: "Cluster" | "Local";
  readonly internalTrafficPolicy?: "Cluster" | "Local";
  readonly sessionAffinity?: "None" | "ClientIP";
  /** `status.loadBalancer.ingress`. */
  readonly ingress?: readonly Json<Pick<V1LoadBalancerIngress, "ip" | "hostname" | "ipMode">>[];
}

function words(name: string): { namespace: string; name: string } {
  const [namespace = "", rest = ""] = name.split("/");
  return { namespace, name: rest };
}

const SERVICE_PORT_REGEXP = /^([a-z0-9-]*):(\d+)(?::(\d+))?(?:\/(TCP|UDP|SCTP))?$/;

function servicePortJson(text: string): Json<V1ServicePort> {
  const [matched, name = "", port, nodePort, protocol = "TCP"] = SERVICE_PORT_REGEXP.exec(text) ?? [];
  if (matched === undefined) {
    throw new SyntaxError(`Service port "${text}" is not "name:port[:nodePort][/PROTOCOL]"`);
  }
  return {
    ...(name === "" ? {} : { name }),
    protocol,
    port: Number(port),
    ...(nodePort === undefined ? {} : { nodePort: Number(nodePort) }),
  };
}

/** A Service called `namespace/name`. */
export function service(fullName: string, spec: ServiceSpec): ObjectJson<"Service"> {
  const { ports, ingress, createdAt, ...rest } = spec;
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { ...words(fullName), ...(createdAt === undefined ? {} : { creationTimestamp: createdAt }) },
    spec: { type: "ClusterIP", ...rest, ports: ports.map(servicePortJson) },
    ...(ingress === undefined
      ? {}
      : { status: { loadBalancer: { ingress } } } satisfies ObjectJson<"Service">),
  };
}

const CONDITIONS: Readonly<Record<string, Json<V1EndpointConditions>>> = {
  ready: { ready: true, serving: true, terminating: false },
  unready: { ready: false, serving: false, terminating: false },
  draining: { ready: false, serving: true, terminating: true },
  // What it does not say of serving is true.
  silent: { ready: false },
  gone: { ready: false, serving: false, terminating: true },
};

/** Reads `address[@node] [ready|unready|silent|draining|gone] [zones=a,b] [nodes=a,b]`. */
function endpointJson(text: string): Json<V1Endpoint> {
  const [place = "", ...facts] = text.split(" ");
  const [address = "", nodeName] = place.split("@");
  let conditions: Json<V1Endpoint>["conditions"];
  let hints: Json<V1Endpoint>["hints"];
  for (const fact of facts) {
    const [kind = "", names = ""] = fact.split("=");
    const hinted = names.split(",").map((name) => ({ name }));
    if (kind === "zones") hints = { ...hints, forZones: hinted };
    else if (kind === "nodes") hints = { ...hints, forNodes: hinted };
    else if (CONDITIONS[kind] !== undefined) conditions = CONDITIONS[kind];
    else throw new SyntaxError(`"${fact}" says nothing about an endpoint`);
  }
  return {
    addresses: [address],
    ...(nodeName === undefined ? {} : { nodeName }),
    ...(conditions === undefined ? {} : { conditions }),
    ...(hints === undefined ? {} : { hints }),
  };
}

const SLICE_PORT_REGEXP = /^([a-z0-9-]*):(\d+)(?:\/(TCP|UDP|SCTP))?$/;

function slicePortJson(text: string): Json<DiscoveryV1EndpointPort> {
  const [matched, name = "", port, protocol = "TCP"] = SLICE_PORT_REGEXP.exec(text) ?? [];
  if (matched === undefined) throw new SyntaxError(`Slice port "${text}" is not "name:port[/PROTOCOL]"`);
  return { name, port: Number(port), protocol };
}

/**
 * An EndpointSlice called `namespace/name` of the Service whose name stands before the first dot of `name`.
 * The family is that of the first endpoint.
 */
export function slice(
  fullName: string,
  ports: readonly string[],
  endpoints: readonly string[],
): ObjectJson<"EndpointSlice"> {
  const { namespace, name } = words(fullName);
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace, name, labels: { "kubernetes.io/service-name": name.split(".")[0] ?? "" } },
    addressType: (endpoints[0] ?? "").split("@")[0]?.includes(":") ? "IPv6" : "IPv4",
    ports: ports.map(slicePortJson),
    endpoints: endpoints.map(endpointJson),
  };
}
