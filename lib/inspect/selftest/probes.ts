/**
 * What is sent, and what has to become of it.
 *
 * @module
 */
import { joinHostPort } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { Packet } from "../../sim/flow.ts";
import {
  ADDRESSES,
  type EndpointName,
  type HostName,
  NODE_PORTS,
  type ServiceName,
  servicePort,
} from "./topology.ts";

/** What an endpoint may see as the source: the sender's own address, or one of the node's. */
export type SeenSource = "own" | "node";

type Servers = Readonly<Partial<Record<EndpointName, SeenSource>>>;

/** What has to become of the packets. */
export type Wanted =
  /** Each of these endpoints answers some, and no other. */
  | { readonly kind: "answers"; readonly by: Servers }
  /** One of these endpoints answers all. */
  | { readonly kind: "one answers"; readonly by: Servers }
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
  return families.flatMap((family) =>
    familyProbes(family).map(([name, from, destination, count, wanted]) => ({
      name,
      family,
      from,
      ...destination,
      count,
      wanted,
    }))
  );
}

type Destination = Pick<Probe, "service" | "protocol" | "ip" | "port">;

function familyProbes(
  family: IpFamily,
): readonly (readonly [name: string, from: HostName, to: Destination, count: number, wanted: Wanted])[] {
  const { hosts, clusterIps, loadBalancerIp } = ADDRESSES[family];
  const { open, local } = NODE_PORTS[family];
  const clusterIp = (service: ServiceName): Destination => ({
    service,
    protocol: service === "dns" ? "udp" : "tcp",
    ip: clusterIps[service],
    port: servicePort(service),
  });
  const nodePort = (service: ServiceName, port: number): Destination => ({
    service,
    protocol: "tcp",
    ip: hosts.node,
    port,
  });
  const guarded: Destination = { service: "guarded", protocol: "tcp", ip: loadBalancerIp, port: 80 };
  const refused: Wanted = { kind: "refused" };
  const answers = (by: Servers): Wanted => ({ kind: "answers", by });
  /** Either of two pods answers, and sees the node as the source. */
  const both = answers({ "pod-a": "node", "pod-b": "node" });
  // A pod that gets itself sees the node's address.
  const own = answers({ "pod-a": "node", "pod-b": "own" });
  const one: Wanted = { kind: "one answers", by: { "pod-a": "own", "pod-b": "node", "far-pod": "own" } };
  return [
    ["cluster IP, from a pod", "pod-a", clusterIp("web"), MANY, own],
    ["cluster IP, from the node", "node", clusterIp("web"), MANY, both],
    ["cluster IP, UDP, from a pod", "pod-a", clusterIp("dns"), MANY, own],
    ["client IP affinity, from a pod", "pod-b", clusterIp("sticky"), MANY, one],
    ["a pod that is its own endpoint", "pod-a", clusterIp("hairpin"), FEW, answers({ "pod-a": "node" })],
    ["no endpoints, from a pod", "pod-a", clusterIp("empty"), FEW, refused],
    ["no endpoints, from the node", "node", clusterIp("empty"), FEW, refused],
    ["node port, from outside", "client", nodePort("node-port", open), MANY, both],
    [
      "node port with external policy Local",
      "client",
      nodePort("local-only", local),
      MANY,
      answers({ "pod-b": "own" }),
    ],
    ["load balancer IP, source in its ranges", "client", guarded, MANY, both],
    ["load balancer IP, source outside of them", "stranger", guarded, 1, { kind: "silence" }],
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
