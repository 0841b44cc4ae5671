/**
 * The Services that a node proves itself with, as the API server would send them.
 *
 * @module
 */
import { hostCidrText } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ObjectJson } from "../../source/decode/api_json.ts";
import type { ServerWish } from "./agent/jobs.ts";
import { ADDRESSES, NODE_NAME, type ServiceName, SERVICES } from "./topology.ts";

/** Where endpoints are. */
export type EndpointName = "pod-a" | "pod-b" | "far-pod";

/** Of the first Service; each has one of its own, in the order of {@linkcode SERVICES}. */
const FIRST_ENDPOINT_PORT = 8080;
/** Node ports are those of all families alike, so that each has a Service of its own. */
export const NODE_PORTS: Readonly<Record<IpFamily, { readonly open: number; readonly local: number }>> = {
  IPv4: { open: 30080, local: 30081 },
  IPv6: { open: 30086, local: 30087 },
};

interface Wish {
  readonly port: number;
  readonly protocol?: "TCP" | "UDP";
  readonly endpoints: readonly EndpointName[];
  readonly spec: (family: IpFamily) => ObjectJson<"Service">["spec"] & { readonly nodePort?: number };
}

const WISHES: Readonly<Record<ServiceName, Wish>> = {
  "web": { port: 80, endpoints: ["pod-a", "pod-b"], spec: () => ({}) },
  "node-port": {
    port: 80,
    endpoints: ["pod-a", "pod-b"],
    spec: (family) => ({ type: "NodePort", nodePort: NODE_PORTS[family].open }),
  },
  "guarded": {
    port: 80,
    endpoints: ["pod-a", "pod-b"],
    spec: (family) => ({
      type: "LoadBalancer",
      allocateLoadBalancerNodePorts: false,
      loadBalancerSourceRanges: [
        hostCidrText(ADDRESSES[family].hosts.client),
      ],
    }),
  },
  "local-only": {
    port: 80,
    endpoints: ["pod-b", "far-pod"],
    spec: (family) => ({
      type: "NodePort",
      externalTrafficPolicy: "Local",
      nodePort: NODE_PORTS[family].local,
    }),
  },
  "dns": { port: 53, protocol: "UDP", endpoints: ["pod-a", "pod-b"], spec: () => ({}) },
  "sticky": {
    port: 80,
    endpoints: ["pod-a", "pod-b", "far-pod"],
    spec: () => ({
      sessionAffinity: "ClientIP",
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } },
    }),
  },
  "empty": { port: 80, endpoints: [], spec: () => ({}) },
  "hairpin": { port: 80, endpoints: ["pod-a"], spec: () => ({}) },
};

/** The port of a Service. */
export function servicePort(name: ServiceName): number {
  return WISHES[name].port;
}

/**
 * The port of a Service's endpoints. By their answers IPVS tells connections apart only by the client's address and port and those of the
 * endpoint: two from one port to two Services, whose endpoints were the same, would get each other's answers.
 */
export function endpointPort(name: ServiceName): number {
  return FIRST_ENDPOINT_PORT + SERVICES.indexOf(name);
}

/** What has to listen where these endpoints are. */
export function endpointServers(family: IpFamily, names: readonly EndpointName[]): readonly ServerWish[] {
  return SERVICES.flatMap((service) => {
    const { protocol = "TCP", endpoints } = WISHES[service];
    return names.filter((name) => endpoints.includes(name)).map((name): ServerWish => ({
      protocol: protocol === "TCP" ? "tcp" : "udp",
      ip: endpointIp(family, name),
      port: endpointPort(service),
    }));
  });
}

/** The address of an endpoint. */
export function endpointIp(family: IpFamily, name: EndpointName): string {
  const { hosts, farPod } = ADDRESSES[family];
  return name === "far-pod" ? farPod : hosts[name];
}

/** Services and EndpointSlices of these families. */
export function selftestObjects(families: readonly IpFamily[]): readonly ObjectJson[] {
  return families.flatMap((family) =>
    SERVICES.flatMap((name) => [serviceOf(name, family), sliceOf(name, family)])
  );
}

function objectName(name: ServiceName, family: IpFamily): string {
  return `${name}-${family.toLowerCase()}`;
}

function serviceOf(name: ServiceName, family: IpFamily): ObjectJson<"Service"> {
  const { port, protocol = "TCP", spec } = WISHES[name];
  const { nodePort, ...rest } = spec(family) ?? {};
  const { clusterIps, loadBalancerIp } = ADDRESSES[family];
  const clusterIP = clusterIps[name];
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "selftest", name: objectName(name, family) },
    spec: {
      ...rest,
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: [family],
      ports: [{ name: "main", port, protocol, ...(nodePort === undefined ? {} : { nodePort }) }],
    },
    ...(rest.type === "LoadBalancer"
      ? { status: { loadBalancer: { ingress: [{ ip: loadBalancerIp }] } } }
      : {}),
  };
}

function sliceOf(name: ServiceName, family: IpFamily): ObjectJson<"EndpointSlice"> {
  const { protocol = "TCP", endpoints } = WISHES[name];
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      namespace: "selftest",
      name: `${objectName(name, family)}-1`,
      labels: { "kubernetes.io/service-name": objectName(name, family) },
    },
    addressType: family,
    ports: [{ name: "main", port: endpointPort(name), protocol }],
    endpoints: endpoints.map((endpoint) => ({
      addresses: [endpointIp(family, endpoint)],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: endpoint === "far-pod" ? "another-node" : NODE_NAME,
    })),
  };
}
