/**
 * Objects for tests of the model: complete, with fields replaced by the test.
 *
 * @module
 */
import type {
  EndpointSlice,
  NodeObject,
  Service,
  ServicePortSpec,
  SliceEndpoint,
  SlicePort,
} from "../../lib/model/objects.ts";
import { NO_IPVS_ANNOTATIONS } from "../../lib/model/ipvs_annotations.ts";
import type { Endpoint, NodeFacts, ServicePort } from "../../lib/model/state.ts";

/** Node of the endpoint tests. */
export const NODE_A: NodeFacts = { name: "node-a", zone: "z1" };

/** Service `shop/web`, ClusterIP 10.96.0.10, one unnamed TCP port 80. */
export function testService(fields: Partial<Service> = {}): Service {
  const clusterIP = fields.clusterIP ?? "10.96.0.10";
  return {
    kind: "Service",
    namespace: "shop",
    name: "web",
    uid: "",
    createdAtSeconds: null,
    type: "ClusterIP",
    clusterIP,
    clusterIPs: [clusterIP],
    ipFamilies: ["IPv4"],
    ports: [testPort()],
    externalIPs: [],
    loadBalancerSourceRanges: [],
    loadBalancerIngress: [],
    sessionAffinity: "None",
    affinityTimeoutSeconds: 10800,
    externalTrafficPolicy: "Cluster",
    internalTrafficPolicy: "Cluster",
    healthCheckNodePort: 0,
    ...fields,
  };
}

/** An unnamed entry of `spec.ports`: 80/TCP. */
export function testPort(fields: Partial<ServicePortSpec> = {}): ServicePortSpec {
  return { name: "", protocol: "TCP", port: 80, nodePort: 0, ...fields };
}

/** Slice `shop/web-1` of Service `shop/web`: unnamed port 8080/TCP and the given endpoints. */
export function testSlice(fields: Partial<EndpointSlice> = {}): EndpointSlice {
  return {
    kind: "EndpointSlice",
    namespace: "shop",
    name: "web-1",
    addressType: "IPv4",
    serviceName: "web",
    ports: [testSlicePort()],
    endpoints: [],
    lastChangeTriggerTimeMs: null,
    ...fields,
  };
}

/** An unnamed entry of a slice's `ports`: 8080/TCP. */
export function testSlicePort(fields: Partial<SlicePort> = {}): SlicePort {
  return { name: "", port: 8080, protocol: "TCP", ...fields };
}

/** A ready entry of a slice's `endpoints`, on no known node. */
export function testSliceEndpoint(address: string, fields: Partial<SliceEndpoint> = {}): SliceEndpoint {
  return {
    address,
    nodeName: "",
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: [],
    nodeHints: [],
    ...fields,
  };
}

/** A ready, remote endpoint `ip:8080` without hints. */
export function testEndpoint(ip: string, fields: Partial<Endpoint> = {}): Endpoint {
  return {
    key: `${ip}:8080`,
    ip,
    port: 8080,
    isLocal: false,
    ready: true,
    serving: true,
    terminating: false,
    zoneHints: [],
    nodeHints: [],
    ...fields,
  };
}

/** The only port of {@link testService}, in the model's form. */
export function testServicePort(fields: Partial<ServicePort> = {}): ServicePort {
  return {
    key: "shop/web/TCP",
    namespacedName: "shop/web",
    createdAtSeconds: null,
    text: "shop/web",
    portName: "",
    protocol: "TCP",
    clusterIP: "10.96.0.10",
    port: 80,
    nodePort: 0,
    externalIPs: [],
    loadBalancerVIPs: [],
    loadBalancerSourceRanges: [],
    stickyMaxAgeSeconds: 0,
    externalPolicyLocal: false,
    internalPolicyLocal: false,
    healthCheckNodePort: 0,
    ipvs: NO_IPVS_ANNOTATIONS,
    ...fields,
  };
}

/** Node `node-a` without addresses, labels, taints or pod networks. */
export function testNode(fields: Partial<NodeObject> = {}): NodeObject {
  return {
    kind: "Node",
    name: "node-a",
    labels: {},
    podCIDRs: [],
    addresses: [],
    taintKeys: [],
    deleting: false,
    ...fields,
  };
}
