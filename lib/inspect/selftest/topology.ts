/**
 * The little network that a node proves itself in: who is in it, and under which addresses.
 *
 * ```
 *  pod-a ──pod-a── node ──client──── client, and a pod of another node
 *  pod-b ──pod-b──      ──stranger── stranger, whom a source range keeps out
 * ```
 *
 * All of it is in namespaces of its own, so that the addresses may be in use on the machine, too.
 *
 * @module
 */
import { hostCidrText } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ObjectJson } from "../../source/decode/api_json.ts";
import type { TestServer } from "./agent.ts";

/** Who has a namespace. The node's interfaces have the names of those behind them. */
export const HOSTS = ["node", "pod-a", "pod-b", "client", "stranger"] as const;
export type HostName = typeof HOSTS[number];
/** All but the node. */
export const NEIGHBOURS = ["pod-a", "pod-b", "client", "stranger"] as const satisfies readonly HostName[];

/** Addresses of one family. */
export interface FamilyAddresses {
  readonly hosts: Readonly<Record<HostName, string>>;
  /** The node's own on each of its interfaces. */
  readonly gateways: Readonly<Record<typeof NEIGHBOURS[number], string>>;
  /** A pod of another node, which lives where the client does. */
  readonly farPod: string;
  readonly podCidr: string;
  /** Service → cluster IP. */
  readonly clusterIps: Readonly<Record<ServiceName, string>>;
  /** Of the load balancer of `guarded`. */
  readonly loadBalancerIp: string;
}

export const SERVICES = [
  "web",
  "node-port",
  "guarded",
  "local-only",
  "dns",
  "sticky",
  "empty",
  "hairpin",
] as const;
export type ServiceName = typeof SERVICES[number];

/** Cluster IPs in the order of {@linkcode SERVICES}, from this one on. */
const FIRST_CLUSTER_IP = 11;

function clusterIps(prefix: string): Readonly<Record<ServiceName, string>> {
  const entries = SERVICES.map((name, index) => [name, `${prefix}${FIRST_CLUSTER_IP + index}`]);
  return Object.fromEntries(entries) as Record<ServiceName, string>;
}

export const ADDRESSES: Readonly<Record<IpFamily, FamilyAddresses>> = {
  IPv4: {
    hosts: {
      "node": "192.0.2.10",
      "pod-a": "10.244.0.2",
      "pod-b": "10.244.0.3",
      "client": "192.0.2.20",
      "stranger": "198.51.100.20",
    },
    gateways: {
      "pod-a": "10.244.0.1",
      "pod-b": "10.244.0.1",
      "client": "192.0.2.10",
      "stranger": "198.51.100.10",
    },
    farPod: "10.244.1.9",
    podCidr: "10.244.0.0/16",
    clusterIps: clusterIps("10.96.0."),
    loadBalancerIp: "203.0.113.10",
  },
  IPv6: {
    hosts: {
      "node": "fd00:192::10",
      "pod-a": "fd00:10:244::2",
      "pod-b": "fd00:10:244::3",
      "client": "fd00:192::20",
      "stranger": "fd00:198::20",
    },
    gateways: {
      "pod-a": "fd00:10:244::1",
      "pod-b": "fd00:10:244::1",
      "client": "fd00:192::10",
      "stranger": "fd00:198::10",
    },
    farPod: "fd00:10:244:1::9",
    podCidr: "fd00:10:244::/56",
    clusterIps: clusterIps("fd00:10:96::"),
    loadBalancerIp: "fd00:203::10",
  },
};

/** All addresses of the node, of these families. */
export function nodeAddresses(families: readonly IpFamily[]): readonly string[] {
  return [...new Set(families.flatMap((family) => Object.values(ADDRESSES[family].gateways)))];
}

export const NODE_NAME = "selftest-node";

/** The Node object of the node. */
export function nodeObject(families: readonly IpFamily[]): ObjectJson<"Node"> {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: NODE_NAME },
    status: {
      addresses: families.map((family) => ({ type: "InternalIP", address: ADDRESSES[family].hosts.node })),
    },
  };
}

const SETTINGS: Readonly<Record<IpFamily, readonly string[]>> = {
  IPv4: [
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
    // Every refusal counts; by default a host sends a few a second.
    "net.ipv4.icmp_ratelimit=0",
  ],
  IPv6: [
    // Some machines have it off by default.
    "net.ipv6.conf.all.disable_ipv6=0",
    "net.ipv6.conf.default.disable_ipv6=0",
    "net.ipv6.conf.all.accept_ra=0",
    "net.ipv6.conf.default.accept_ra=0",
    // Without it a link-local address cannot be used for its first second.
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.icmp.ratelimit=0",
  ],
};
const FORWARDING: Readonly<Record<IpFamily, string>> = {
  IPv4: "net.ipv4.ip_forward=1",
  IPv6: "net.ipv6.conf.all.forwarding=1",
};

/** Kernel settings of a namespace, before it has interfaces. */
export function settingsOf(host: HostName, families: readonly IpFamily[]): readonly string[] {
  return families.flatMap((family) => [
    ...SETTINGS[family],
    ...(host === "node" ? [FORWARDING[family]] : []),
  ]);
}

/** Lines of `ip` for the node's namespace: links to all namespaces, addresses and routes. */
export function nodeLines(
  namespaces: Readonly<Record<HostName, string>>,
  families: readonly IpFamily[],
): readonly string[] {
  return [
    ...NEIGHBOURS.map((name) => `link add ${name} type veth peer name eth0 netns ${namespaces[name]}`),
    ...NEIGHBOURS.flatMap((name) =>
      families.map((family) => addAddress(family, ADDRESSES[family].gateways[name], name))
    ),
    ...NEIGHBOURS.map((name) => `link set ${name} up`),
    ...families.flatMap((family) => {
      const { hosts, farPod } = ADDRESSES[family];
      const six = family === "IPv6" ? "-6 " : "";
      return [
        ...NEIGHBOURS.map((name) => `${six}route add ${hostCidrText(hosts[name])} dev ${name}`),
        `${six}route add ${hostCidrText(farPod)} via ${hosts.client}`,
        `${six}route add default via ${hosts.client}`,
      ];
    }),
  ];
}

/** Lines of `ip` for the namespace of a neighbour. */
export function neighbourLines(
  name: typeof NEIGHBOURS[number],
  families: readonly IpFamily[],
): readonly string[] {
  return [
    ...families.flatMap((family) => {
      const { hosts, farPod } = ADDRESSES[family];
      const own = [hosts[name], ...(name === "client" ? [farPod] : [])];
      return own.map((address) => addAddress(family, address, "eth0"));
    }),
    "link set eth0 up",
    ...families.flatMap((family) => {
      const { hosts, gateways } = ADDRESSES[family];
      const six = family === "IPv6" ? "-6 " : "";
      return [
        `${six}route add ${hostCidrText(gateways[name])} dev eth0 src ${hosts[name]}`,
        `${six}route add default via ${gateways[name]} src ${hosts[name]}`,
      ];
    }),
  ];
}

function addAddress(family: IpFamily, address: string, device: string): string {
  return family === "IPv6"
    ? `-6 addr add ${hostCidrText(address)} dev ${device} nodad`
    : `addr add ${hostCidrText(address)} dev ${device}`;
}

/** Where endpoints are. */
export type EndpointName = "pod-a" | "pod-b" | "far-pod";

/** Of the first Service; each has one of its own, in the order of {@linkcode SERVICES}. */
const FIRST_ENDPOINT_PORT = 8080;
/** Node ports are those of all families alike, so that each has a Service of its own. */
export const NODE_PORTS: Readonly<Record<IpFamily, { readonly open: number; readonly local: number }>> = {
  IPv4: { open: 30080, local: 30081 },
  IPv6: { open: 30086, local: 30087 },
};

interface TestService {
  readonly port: number;
  readonly protocol?: "TCP" | "UDP";
  readonly endpoints: readonly EndpointName[];
  readonly spec: (family: IpFamily) => ObjectJson<"Service">["spec"] & { readonly nodePort?: number };
}

const TEST_SERVICES: Readonly<Record<ServiceName, TestService>> = {
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
  return TEST_SERVICES[name].port;
}

/**
 * The port of a Service's endpoints. By their answers IPVS tells connections apart only by the client's address and port and those of the
 * endpoint: two from one port to two Services, whose endpoints were the same, would get each other's answers.
 */
export function endpointPort(name: ServiceName): number {
  return FIRST_ENDPOINT_PORT + SERVICES.indexOf(name);
}

/** What has to listen where these endpoints are. */
export function endpointServers(family: IpFamily, names: readonly EndpointName[]): readonly TestServer[] {
  return SERVICES.flatMap((service) => {
    const { protocol = "TCP", endpoints } = TEST_SERVICES[service];
    return names.filter((name) => endpoints.includes(name)).map((name): TestServer => ({
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
  const { port, protocol = "TCP", spec } = TEST_SERVICES[name];
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
  const { protocol = "TCP", endpoints } = TEST_SERVICES[name];
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
