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

const OBJECT_META = message<V1ObjectMeta>({
  1: ["name", "text"],
  3: ["namespace", "text"],
  5: ["uid", "text"],
  6: ["resourceVersion", "text"],
  8: ["creationTimestamp", "time"],
  9: ["deletionTimestamp", "time"],
  11: ["labels", "map"],
  12: ["annotations", "map"],
});

const SERVICE_PORT = message<V1ServicePort>({
  1: ["name", "text"],
  2: ["protocol", "text"],
  3: ["port", "number"],
  5: ["nodePort", "number"],
});

const CLIENT_IP_CONFIG = message<V1ClientIPConfig>({ 1: ["timeoutSeconds", "number"] });
const SESSION_AFFINITY_CONFIG = message<V1SessionAffinityConfig>({
  1: ["clientIP", "object", CLIENT_IP_CONFIG],
});

const SERVICE_SPEC = message<V1ServiceSpec>({
  1: ["ports", "objects", SERVICE_PORT],
  3: ["clusterIP", "text"],
  4: ["type", "text"],
  5: ["externalIPs", "texts"],
  7: ["sessionAffinity", "text"],
  9: ["loadBalancerSourceRanges", "texts"],
  11: ["externalTrafficPolicy", "text"],
  12: ["healthCheckNodePort", "number"],
  14: ["sessionAffinityConfig", "object", SESSION_AFFINITY_CONFIG],
  18: ["clusterIPs", "texts"],
  19: ["ipFamilies", "texts"],
  22: ["internalTrafficPolicy", "text"],
});

const INGRESS = message<V1LoadBalancerIngress>({
  1: ["ip", "text"],
  3: ["ipMode", "optionalText"],
});
const LOAD_BALANCER_STATUS = message<V1LoadBalancerStatus>({
  1: ["ingress", "objects", INGRESS],
});
const SERVICE_STATUS = message<V1ServiceStatus>({
  1: ["loadBalancer", "object", LOAD_BALANCER_STATUS],
});

const SERVICE = message<V1Service>({
  1: ["metadata", "object", OBJECT_META],
  2: ["spec", "object", SERVICE_SPEC],
  3: ["status", "object", SERVICE_STATUS],
});

const CONDITIONS = message<V1EndpointConditions>({
  1: ["ready", "boolean"],
  2: ["serving", "boolean"],
  3: ["terminating", "boolean"],
});
const FOR_ZONE = message<V1ForZone>({ 1: ["name", "text"] });
const FOR_NODE = message<V1ForNode>({ 1: ["name", "text"] });
const HINTS = message<V1EndpointHints>({
  1: ["forZones", "objects", FOR_ZONE],
  2: ["forNodes", "objects", FOR_NODE],
});
const ENDPOINT = message<V1Endpoint>({
  1: ["addresses", "texts"],
  2: ["conditions", "object", CONDITIONS],
  6: ["nodeName", "text"],
  8: ["hints", "object", HINTS],
});
const SLICE_PORT = message<DiscoveryV1EndpointPort>({
  1: ["name", "optionalText"],
  2: ["protocol", "text"],
  3: ["port", "number"],
});
const ENDPOINT_SLICE = message<V1EndpointSlice>({
  1: ["metadata", "object", OBJECT_META],
  2: ["endpoints", "objects", ENDPOINT],
  3: ["ports", "objects", SLICE_PORT],
  4: ["addressType", "text"],
});

const TAINT = message<V1Taint>({ 1: ["key", "text"] });
const NODE_SPEC = message<V1NodeSpec>({
  1: ["podCIDR", "text"],
  5: ["taints", "objects", TAINT],
  7: ["podCIDRs", "texts"],
});
const NODE_ADDRESS = message<V1NodeAddress>({ 1: ["type", "text"], 2: ["address", "text"] });
const NODE_STATUS = message<V1NodeStatus>({ 5: ["addresses", "objects", NODE_ADDRESS] });
const NODE = message<V1Node>({
  1: ["metadata", "object", OBJECT_META],
  2: ["spec", "object", NODE_SPEC],
  3: ["status", "object", NODE_STATUS],
});

const SERVICE_CIDR_SPEC = message<V1ServiceCIDRSpec>({ 1: ["cidrs", "texts"] });
const SERVICE_CIDR = message<V1ServiceCIDR>({
  1: ["metadata", "object", OBJECT_META],
  2: ["spec", "object", SERVICE_CIDR_SPEC],
});

const STATUS_DETAILS = message<V1StatusDetails>({ 5: ["retryAfterSeconds", "number"] });
/** Status with which a server refuses a request. */
export const STATUS: Message<V1Status> = message<V1Status>({
  3: ["message", "text"],
  4: ["reason", "text"],
  5: ["details", "object", STATUS_DETAILS],
  6: ["code", "number"],
});

/** Message tables by kind. */
export const KIND_MESSAGES: { readonly [Kind in keyof WatchedModels]: Message<WatchedModels[Kind]> } = {
  Service: SERVICE,
  EndpointSlice: ENDPOINT_SLICE,
  Node: NODE,
  ServiceCIDR: SERVICE_CIDR,
};
