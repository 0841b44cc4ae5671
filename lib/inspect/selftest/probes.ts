/**
 * What is sent, and what has to become of it.
 *
 * @module
 */
import { joinHostPort } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { Packet } from "../../sim/flow.ts";
import { type EndpointName, NODE_PORTS, servicePort } from "./objects.ts";
import { ADDRESSES, type HostName, type ServiceName } from "./topology.ts";

/** What an endpoint may see as the source: the sender's own address, or one of the node's. */
export type SeenSource = "own" | "node";

/** What has to become of the packets. */
export type Wanted =
  /** Each of these endpoints answers some, and nobody else does. */
  | { readonly kind: "answers"; readonly by: Readonly<Partial<Record<EndpointName, SeenSource>>> }
  /** One of these endpoints answers all. */
  | { readonly kind: "one answers"; readonly by: Readonly<Partial<Record<EndpointName, SeenSource>>> }
  | { readonly kind: "refused" }
  | { readonly kind: "silence" };

/** One sender, one destination. */
export interface Probe {
  /** Unique in its family; e.g. `cluster IP, from a pod`. */
  readonly name: string;
  readonly family: IpFamily;
  readonly from: HostName;
  readonly service: ServiceName;
  readonly protocol: "tcp" | "udp";
  readonly ip: string;
  readonly port: number;
  /** How many connections, one after the other. */
  readonly count: number;
  readonly wanted: Wanted;
}

/**
 * Of two endpoints that take turns by chance, one stays without any of so many connections in one run of 60 million, of three in one of
 * 5,000 million.
 */
const MANY = 27;
const FEW = 3;

/** All probes of these families. */
export function probesOf(families: readonly IpFamily[]): readonly Probe[] {
  return families.flatMap(familyProbes);
}

function familyProbes(family: IpFamily): readonly Probe[] {
  return [...insideProbes(family), ...outsideProbes(family)].map((probe) => ({ ...probe, family }));
}

type FamilyProbe = Omit<Probe, "family">;
type Destination = Pick<Probe, "service" | "protocol" | "ip" | "port">;

/** Either of two pods answers, and sees the node as the source. */
const BOTH = { "pod-a": "node", "pod-b": "node" } as const;

/** To the cluster IP of a Service. */
function clusterIpOf(service: ServiceName, family: IpFamily): Destination {
  return {
    service,
    protocol: service === "dns" ? "udp" : "tcp",
    ip: ADDRESSES[family].clusterIps[service],
    port: servicePort(service),
  };
}

/** From pods and from the node. */
function insideProbes(family: IpFamily): readonly FamilyProbe[] {
  const ofCluster = (service: ServiceName): Destination => clusterIpOf(service, family);
  // A pod that gets itself sees the node's address.
  const own = { "pod-a": "node", "pod-b": "own" } as const;
  return [
    {
      name: "cluster IP, from a pod",
      from: "pod-a",
      ...ofCluster("web"),
      count: MANY,
      wanted: { kind: "answers", by: own },
    },
    {
      name: "cluster IP, from the node",
      from: "node",
      ...ofCluster("web"),
      count: MANY,
      wanted: { kind: "answers", by: BOTH },
    },
    {
      name: "cluster IP, UDP, from a pod",
      from: "pod-a",
      ...ofCluster("dns"),
      count: MANY,
      wanted: { kind: "answers", by: own },
    },
    {
      name: "client IP affinity, from a pod",
      from: "pod-b",
      ...ofCluster("sticky"),
      count: MANY,
      wanted: { kind: "one answers", by: { "pod-a": "own", "pod-b": "node", "far-pod": "own" } },
    },
    {
      name: "a pod that is its own endpoint",
      from: "pod-a",
      ...ofCluster("hairpin"),
      count: FEW,
      wanted: { kind: "answers", by: { "pod-a": "node" } },
    },
    {
      name: "no endpoints, from a pod",
      from: "pod-a",
      ...ofCluster("empty"),
      count: FEW,
      wanted: { kind: "refused" },
    },
    {
      name: "no endpoints, from the node",
      from: "node",
      ...ofCluster("empty"),
      count: FEW,
      wanted: { kind: "refused" },
    },
  ];
}

/** From clients outside of the cluster. */
function outsideProbes(family: IpFamily): readonly FamilyProbe[] {
  const { hosts, loadBalancerIp } = ADDRESSES[family];
  const { open, local } = NODE_PORTS[family];
  const ofNode = (service: ServiceName, port: number) =>
    ({ service, protocol: "tcp", ip: hosts.node, port }) as const;
  const guarded = { service: "guarded", protocol: "tcp", ip: loadBalancerIp, port: 80 } as const;
  return [
    {
      name: "node port, from outside",
      from: "client",
      ...ofNode("node-port", open),
      count: MANY,
      wanted: { kind: "answers", by: BOTH },
    },
    {
      name: "node port with external policy Local",
      from: "client",
      ...ofNode("local-only", local),
      count: MANY,
      wanted: { kind: "answers", by: { "pod-b": "own" } },
    },
    {
      name: "load balancer IP, source in its ranges",
      from: "client",
      ...guarded,
      count: MANY,
      wanted: { kind: "answers", by: BOTH },
    },
    {
      name: "load balancer IP, source outside of them",
      from: "stranger",
      ...guarded,
      count: 1,
      wanted: { kind: "silence" },
    },
  ];
}

/** The first packet of a probe's connections, as the node sees it. */
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

/** `pod-a → 10.96.0.11:80/tcp` */
export function wayOf({ from, ip, port, protocol }: Probe): string {
  return `${from} → ${joinHostPort(ip, port)}/${protocol}`;
}
