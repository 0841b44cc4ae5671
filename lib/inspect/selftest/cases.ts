/**
 * Network of the test, its Services, and the probes that are sent to them.
 *
 * ```
 *  pod-a ──pod-a── node ──client──── client, and a pod of another node
 *  pod-b ──pod-b──      ──stranger── stranger, outside of the source ranges
 * ```
 *
 * All hosts are network namespaces, so that the addresses may be in use on the machine, too. Pure.
 *
 * @module
 */
import { hostCidrText } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { Packet } from "../../sim/flow.ts";
import type { ObjectJson } from "../../source/decode/api_json.ts";
import type { TestServer } from "./agent.ts";

/** All hosts but the node. Each of the node's interfaces is named after the host behind it. */
export const NEIGHBOURS = ["pod-a", "pod-b", "client", "stranger"] as const;
export type NeighbourName = typeof NEIGHBOURS[number];
/** All hosts, each in a namespace of its own. */
export const HOSTS = ["node", ...NEIGHBOURS] as const;
export type HostName = typeof HOSTS[number];
/** Hosts of endpoints; `far-pod` is a pod of another node, whose address the client has. */
export type EndpointName = "pod-a" | "pod-b" | "far-pod";

export interface FamilyAddresses {
  readonly hosts: Readonly<Record<HostName, string>>;
  /** The node's address on each of its interfaces. */
  readonly gateways: Readonly<Record<NeighbourName, string>>;
  readonly farPod: string;
  readonly podCidr: string;
  /** Prefix of cluster IPs. */
  readonly services: string;
  /** Load-balancer IP of Service `guarded`. */
  readonly loadBalancerIp: string;
  /** Node ports. Families share them, so each family has Services of its own. */
  readonly nodePorts: Readonly<Partial<Record<ServiceName, number>>>;
}

/** Addresses from the prefixes of pods, of the node's network, and of the stranger's. */
function hostsIn(
  pods: string,
  nodes: string,
  strangers: string,
): Pick<FamilyAddresses, "hosts" | "gateways"> {
  return {
    hosts: {
      "node": `${nodes}10`,
      "pod-a": `${pods}2`,
      "pod-b": `${pods}3`,
      "client": `${nodes}20`,
      "stranger": `${strangers}20`,
    },
    gateways: {
      "pod-a": `${pods}1`,
      "pod-b": `${pods}1`,
      "client": `${nodes}10`,
      "stranger": `${strangers}10`,
    },
  };
}

export const ADDRESSES: Readonly<Record<IpFamily, FamilyAddresses>> = {
  IPv4: {
    ...hostsIn("10.244.0.", "192.0.2.", "198.51.100."),
    farPod: "10.244.1.9",
    podCidr: "10.244.0.0/16",
    services: "10.96.0.",
    loadBalancerIp: "203.0.113.10",
    nodePorts: { "node-port": 30080, "local-only": 30081 },
  },
  IPv6: {
    ...hostsIn("fd00:10:244::", "fd00:192::", "fd00:198::"),
    farPod: "fd00:10:244:1::9",
    podCidr: "fd00:10:244::/56",
    services: "fd00:10:96::",
    loadBalancerIp: "fd00:203::10",
    nodePorts: { "node-port": 30086, "local-only": 30087 },
  },
};

/** All addresses of the node, in these families. */
export function nodeAddresses(families: readonly IpFamily[]): readonly string[] {
  return [...new Set(families.flatMap((family) => Object.values(ADDRESSES[family].gateways)))];
}

export function endpointIp(family: IpFamily, name: EndpointName): string {
  const { hosts, farPod } = ADDRESSES[family];
  return name === "far-pod" ? farPod : hosts[name];
}

interface TestService {
  readonly endpoints: readonly EndpointName[];
  readonly protocol?: "UDP";
  readonly spec?: (addresses: FamilyAddresses) => ObjectJson<"Service">["spec"];
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

const BOTH_PODS = ["pod-a", "pod-b"] as const;
const TEST_SERVICES: Readonly<Record<ServiceName, TestService>> = {
  "web": { endpoints: BOTH_PODS },
  "node-port": { endpoints: BOTH_PODS, spec: () => ({ type: "NodePort" }) },
  "guarded": {
    endpoints: BOTH_PODS,
    spec: ({ hosts }) => ({
      type: "LoadBalancer",
      allocateLoadBalancerNodePorts: false,
      loadBalancerSourceRanges: [hostCidrText(hosts.client)],
    }),
  },
  "local-only": {
    endpoints: ["pod-b", "far-pod"],
    spec: () => ({ type: "NodePort", externalTrafficPolicy: "Local" }),
  },
  "dns": { endpoints: BOTH_PODS, protocol: "UDP" },
  "sticky": {
    endpoints: ["pod-a", "pod-b", "far-pod"],
    spec: () => ({
      sessionAffinity: "ClientIP",
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } },
    }),
  },
  "empty": { endpoints: [] },
  "hairpin": { endpoints: ["pod-a"] },
};

/** Protocol and port of a Service. */
function portOf(name: ServiceName): { readonly protocol: "TCP" | "UDP"; readonly port: number } {
  return TEST_SERVICES[name].protocol === "UDP"
    ? { protocol: "UDP", port: 53 }
    : { protocol: "TCP", port: 80 };
}

/** Last part of the first Service's cluster IP; the others follow in order. */
const FIRST_CLUSTER_IP = 11;
const FIRST_ENDPOINT_PORT = 8080;

/**
 * Port of a Service's endpoints. IPVS assigns replies to connections only by the addresses and ports of
 * client and endpoint: two from one port to two Services with the same endpoints would get each other's replies.
 */
export function endpointPort(name: ServiceName): number {
  return FIRST_ENDPOINT_PORT + SERVICES.indexOf(name);
}

function clusterIp(name: ServiceName, family: IpFamily): string {
  return `${ADDRESSES[family].services}${FIRST_CLUSTER_IP + SERVICES.indexOf(name)}`;
}

/** Servers of these endpoints. */
export function endpointServers(family: IpFamily, names: readonly EndpointName[]): readonly TestServer[] {
  return SERVICES.flatMap((service) => {
    const { endpoints, protocol } = TEST_SERVICES[service];
    return names.filter((name) => endpoints.includes(name)).map((name): TestServer => ({
      protocol: protocol === "UDP" ? "udp" : "tcp",
      ip: endpointIp(family, name),
      port: endpointPort(service),
    }));
  });
}

export const NODE_NAME = "selftest-node";

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

/** Services and EndpointSlices of these families. */
export function selftestObjects(families: readonly IpFamily[]): readonly ObjectJson[] {
  return families.flatMap((family) => SERVICES.flatMap((name) => objectsOf(name, family)));
}

function objectsOf(
  service: ServiceName,
  family: IpFamily,
): readonly [ObjectJson<"Service">, ObjectJson<"EndpointSlice">] {
  const { endpoints, spec } = TEST_SERVICES[service];
  const { port, protocol } = portOf(service);
  const addresses = ADDRESSES[family];
  const name = `${service}-${family.toLowerCase()}`;
  const clusterIP = clusterIp(service, family);
  const nodePort = addresses.nodePorts[service];
  const own = spec?.(addresses);
  return [{
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "selftest", name },
    spec: {
      ...own,
      clusterIP,
      clusterIPs: [clusterIP],
      ipFamilies: [family],
      ports: [{ name: "main", port, protocol, ...(nodePort === undefined ? {} : { nodePort }) }],
    },
    ...(own?.type === "LoadBalancer"
      ? { status: { loadBalancer: { ingress: [{ ip: addresses.loadBalancerIp }] } } }
      : {}),
  }, {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      namespace: "selftest",
      name: `${name}-1`,
      labels: { "kubernetes.io/service-name": name },
    },
    addressType: family,
    ports: [{ name: "main", port: endpointPort(service), protocol }],
    endpoints: endpoints.map((endpoint) => ({
      addresses: [endpointIp(family, endpoint)],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: endpoint === "far-pod" ? "another-node" : NODE_NAME,
    })),
  }];
}

/** Source address that an endpoint sees: the sender's own, or one of the node's. */
export type SeenSource = "own" | "node";

/** Expected result of a probe. */
export type Wanted =
  /** Each of these endpoints answers at least once, and no other. */
  | { readonly kind: "answers"; readonly by: Readonly<Partial<Record<EndpointName, SeenSource>>> }
  /** One of these endpoints answers all connections. */
  | { readonly kind: "one answers"; readonly by: Readonly<Partial<Record<EndpointName, SeenSource>>> }
  | { readonly kind: "refused" }
  | { readonly kind: "silence" };

/** Connections from one sender to one destination. */
export interface Probe {
  /** Name, unique in its family; e.g. `cluster IP, from a pod`. */
  readonly name: string;
  readonly family: IpFamily;
  readonly from: HostName;
  readonly service: ServiceName;
  readonly protocol: "tcp" | "udp";
  readonly ip: string;
  readonly port: number;
  /** Number of connections, one after the other. */
  readonly count: number;
  readonly wanted: Wanted;
}

/**
 * Of two random endpoints, one gets none of so many connections in one run of 60 million; of three, one gets all of them in one of
 * 2.5 million million.
 */
const MANY = 27;
const FEW = 3;
/** Both pods answer, and see the node as the source. */
const BOTH: Wanted = { kind: "answers", by: { "pod-a": "node", "pod-b": "node" } };
// A pod that reaches itself sees the node's address.
const OWN: Wanted = { kind: "answers", by: { "pod-a": "node", "pod-b": "own" } };
const ONE: Wanted = { kind: "one answers", by: { "pod-a": "own", "pod-b": "node", "far-pod": "own" } };
const REFUSED: Wanted = { kind: "refused" };

const PROBES: readonly (readonly [
  name: string,
  from: HostName,
  to: ServiceName,
  count: number,
  wanted: Wanted,
])[] = [
  ["cluster IP, from a pod", "pod-a", "web", MANY, OWN],
  ["cluster IP, from the node", "node", "web", MANY, BOTH],
  ["cluster IP, UDP, from a pod", "pod-a", "dns", MANY, OWN],
  ["client IP affinity, from a pod", "pod-b", "sticky", MANY, ONE],
  ["a pod that is its own endpoint", "pod-a", "hairpin", FEW, { kind: "answers", by: { "pod-a": "node" } }],
  ["no endpoints, from a pod", "pod-a", "empty", FEW, REFUSED],
  ["no endpoints, from the node", "node", "empty", FEW, REFUSED],
  ["node port, from outside", "client", "node-port", MANY, BOTH],
  [
    "node port with external policy Local",
    "client",
    "local-only",
    MANY,
    { kind: "answers", by: { "pod-b": "own" } },
  ],
  ["load balancer IP, source in its ranges", "client", "guarded", MANY, BOTH],
  ["load balancer IP, source outside of them", "stranger", "guarded", 1, { kind: "silence" }],
];

/** Probes of these families, to the Service's node port if it has one, the load balancer's IP, else the cluster IP. */
export function probesOf(families: readonly IpFamily[]): readonly Probe[] {
  return families.flatMap((family) =>
    PROBES.map(([name, from, service, count, wanted]): Probe => {
      const { hosts, nodePorts, loadBalancerIp } = ADDRESSES[family];
      const { protocol, port } = portOf(service);
      const nodePort = nodePorts[service];
      return {
        name,
        family,
        from,
        service,
        protocol: protocol === "TCP" ? "tcp" : "udp",
        ip: nodePort !== undefined
          ? hosts.node
          : service === "guarded"
          ? loadBalancerIp
          : clusterIp(service, family),
        port: nodePort ?? port,
        count,
        wanted,
      };
    })
  );
}

/** First packet of a probe's connections, as the node sees it. */
export function packetOfProbe({ family, from, ip, port, protocol }: Probe): Packet {
  return {
    source: ADDRESSES[family].hosts[from],
    destination: ip,
    protocol,
    port,
    inInterface: from === "node" ? "" : from,
    state: "NEW",
    mark: 0,
  };
}
