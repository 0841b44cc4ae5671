/**
 * The fields that are read of Kubernetes' messages.
 *
 * Source: `generated.proto` of Kubernetes 1.34, in staging/src/k8s.io: api/core/v1, api/discovery/v1, api/networking/v1,
 * apimachinery/pkg/apis/meta/v1 and apimachinery/pkg/runtime. The numbers of fields never change.
 *
 * @module
 */
import type {
  DiscoveryV1EndpointPort,
  V1ClientIPConfig,
  V1Endpoint,
  V1EndpointConditions,
  V1EndpointHints,
  V1EndpointSlice,
  V1ForNode,
  V1ForZone,
  V1LoadBalancerIngress,
  V1LoadBalancerStatus,
  V1Node,
  V1NodeAddress,
  V1NodeSpec,
  V1NodeStatus,
  V1ObjectMeta,
  V1Service,
  V1ServiceCIDR,
  V1ServiceCIDRSpec,
  V1ServicePort,
  V1ServiceSpec,
  V1ServiceStatus,
  V1SessionAffinityConfig,
  V1Status,
  V1StatusDetails,
  V1Taint,
} from "@kubernetes/client-node";
import type { WatchedModels } from "./api_json.ts";
import { type Message, message } from "./protobuf_reader.ts";

const OBJECT_META = message<V1ObjectMeta>((field) => ({
  1: field.text("name"),
  3: field.sharedText("namespace"),
  5: field.text("uid"),
  6: field.text("resourceVersion"),
  8: field.time("creationTimestamp"),
  9: field.time("deletionTimestamp"),
  11: field.map("labels"),
  12: field.map("annotations"),
}));

const SERVICE_PORT = message<V1ServicePort>((field) => ({
  1: field.sharedText("name"),
  2: field.text("protocol"),
  3: field.number("port"),
  5: field.number("nodePort"),
}));

const CLIENT_IP_CONFIG = message<V1ClientIPConfig>((field) => ({ 1: field.number("timeoutSeconds") }));
const SESSION_AFFINITY_CONFIG = message<V1SessionAffinityConfig>((field) => ({
  1: field.object("clientIP", CLIENT_IP_CONFIG),
}));

const SERVICE_SPEC = message<V1ServiceSpec>((field) => ({
  1: field.objects("ports", SERVICE_PORT),
  3: field.text("clusterIP"),
  4: field.text("type"),
  5: field.texts("externalIPs"),
  7: field.text("sessionAffinity"),
  9: field.texts("loadBalancerSourceRanges"),
  11: field.text("externalTrafficPolicy"),
  12: field.number("healthCheckNodePort"),
  14: field.object("sessionAffinityConfig", SESSION_AFFINITY_CONFIG),
  18: field.texts("clusterIPs"),
  19: field.texts("ipFamilies"),
  22: field.text("internalTrafficPolicy"),
}));

const INGRESS = message<V1LoadBalancerIngress>((field) => ({
  1: field.text("ip"),
  3: field.optionalText("ipMode"),
}));
const LOAD_BALANCER_STATUS = message<V1LoadBalancerStatus>((field) => ({
  1: field.objects("ingress", INGRESS),
}));
const SERVICE_STATUS = message<V1ServiceStatus>((field) => ({
  1: field.object("loadBalancer", LOAD_BALANCER_STATUS),
}));

const SERVICE = message<V1Service>((field) => ({
  1: field.object("metadata", OBJECT_META),
  2: field.object("spec", SERVICE_SPEC),
  3: field.object("status", SERVICE_STATUS),
}));

const CONDITIONS = message<V1EndpointConditions>((field) => ({
  1: field.boolean("ready"),
  2: field.boolean("serving"),
  3: field.boolean("terminating"),
}));
const FOR_ZONE = message<V1ForZone>((field) => ({ 1: field.sharedText("name") }));
const FOR_NODE = message<V1ForNode>((field) => ({ 1: field.sharedText("name") }));
const HINTS = message<V1EndpointHints>((field) => ({
  1: field.objects("forZones", FOR_ZONE),
  2: field.objects("forNodes", FOR_NODE),
}));
const ENDPOINT = message<V1Endpoint>((field) => ({
  1: field.texts("addresses"),
  2: field.object("conditions", CONDITIONS),
  6: field.sharedText("nodeName"),
  8: field.object("hints", HINTS),
}));
const SLICE_PORT = message<DiscoveryV1EndpointPort>((field) => ({
  1: field.optionalText("name"),
  2: field.text("protocol"),
  3: field.number("port"),
}));
const ENDPOINT_SLICE = message<V1EndpointSlice>((field) => ({
  1: field.object("metadata", OBJECT_META),
  2: field.objects("endpoints", ENDPOINT),
  3: field.objects("ports", SLICE_PORT),
  4: field.text("addressType"),
}));

const TAINT = message<V1Taint>((field) => ({ 1: field.text("key") }));
const NODE_SPEC = message<V1NodeSpec>((field) => ({
  1: field.text("podCIDR"),
  5: field.objects("taints", TAINT),
  7: field.texts("podCIDRs"),
}));
const NODE_ADDRESS = message<V1NodeAddress>((field) => ({ 1: field.text("type"), 2: field.text("address") }));
const NODE_STATUS = message<V1NodeStatus>((field) => ({ 5: field.objects("addresses", NODE_ADDRESS) }));
const NODE = message<V1Node>((field) => ({
  1: field.object("metadata", OBJECT_META),
  2: field.object("spec", NODE_SPEC),
  3: field.object("status", NODE_STATUS),
}));

const SERVICE_CIDR_SPEC = message<V1ServiceCIDRSpec>((field) => ({ 1: field.texts("cidrs") }));
const SERVICE_CIDR = message<V1ServiceCIDR>((field) => ({
  1: field.object("metadata", OBJECT_META),
  2: field.object("spec", SERVICE_CIDR_SPEC),
}));

const STATUS_DETAILS = message<V1StatusDetails>((field) => ({ 5: field.number("retryAfterSeconds") }));
/** What a server says instead of what it was asked for. */
export const STATUS: Message<V1Status> = message<V1Status>((field) => ({
  3: field.text("message"),
  4: field.text("reason"),
  5: field.object("details", STATUS_DETAILS),
  6: field.number("code"),
}));

/** By kind. */
export const KIND_MESSAGES: { readonly [Kind in keyof WatchedModels]: Message<WatchedModels[Kind]> } = {
  Service: SERVICE,
  EndpointSlice: ENDPOINT_SLICE,
  Node: NODE,
  ServiceCIDR: SERVICE_CIDR,
};
