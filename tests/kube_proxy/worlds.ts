/**
 * Random clusters, and packets to their Services from everywhere around a node: the same seed gives the same ones.
 *
 * @module
 */
import { joinHostPort } from "../../lib/model/ip.ts";
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import { Random } from "../chaos/random.ts";
import { service, slice } from "../flows/objects.ts";
import { NODE_ADDRESSES, NODE_OBJECT } from "../support/node_lab.ts";

/** One family's addresses, by what they are for. */
interface Addresses {
  readonly clusterIp: (index: number) => string;
  readonly externalIp: (index: number) => string;
  readonly ingressIp: (index: number) => string;
  readonly pods: readonly string[];
  readonly ranges: readonly string[];
  /** Where packets come from, with the interface, but for pods behind the Service. */
  readonly sources: readonly string[];
  readonly loopback: string;
}

const FAMILIES: readonly Addresses[] = [{
  clusterIp: (index) => `10.96.0.${10 + index}`,
  externalIp: (index) => `198.51.100.${100 + index}`,
  ingressIp: (index) => `203.0.113.${10 + index}`,
  pods: ["10.244.0.11", "10.244.0.12", "10.244.1.11", "10.244.1.12"],
  ranges: ["198.51.100.0/24", "192.0.2.0/24"],
  sources: ["10.244.0.5@cni0", "10.244.1.9@eth0", "198.51.100.9@eth0", "100.64.7.7@eth0", "192.0.2.10@node"],
  loopback: "127.0.0.1",
}, {
  clusterIp: (index) => `fd00:10:96::${10 + index}`,
  externalIp: (index) => `fd00:198::${100 + index}`,
  ingressIp: (index) => `fd00:203::${10 + index}`,
  pods: ["fd00:10:244::11", "fd00:10:244::12", "fd00:10:244:1::11", "fd00:10:244:1::12"],
  ranges: ["fd00:198::/64", "fd00:192::/64"],
  sources: ["fd00:10:244::5@cni0", "fd00:10:244:1::9@eth0", "fd00:198::9@eth0", "fd00:192::10@node"],
  loopback: "::1",
}];
const NAMES = ["IPv4", "IPv6"] as const;
/** Index of a pod's address → the node that it is on. */
const NODES = ["node-a", "node-a", "node-b", "node-b"] as const;
const CONDITIONS = ["ready", "ready", "ready", "unready", "draining"] as const;

/** A packet that begins a connection, as flow cases write it, and the Service port that it is for. */
export interface WorldPacket {
  readonly text: string;
  /** All requests of one client go to one endpoint, which each proxy chooses for itself. */
  readonly isSticky: boolean;
}

/** One random cluster. */
export interface World {
  readonly objects: readonly ObjectJson[];
  readonly packets: readonly WorldPacket[];
}

/** What a Service is made of here. */
interface Made {
  readonly index: number;
  readonly type: "ClusterIP" | "NodePort" | "LoadBalancer";
  readonly families: readonly number[];
  readonly ports: readonly {
    readonly protocol: "TCP" | "UDP";
    readonly port: number;
    readonly nodePort: number;
  }[];
  readonly isSticky: boolean;
  readonly hasExternalIp: boolean;
  /** Family → the indices of its endpoints' addresses. */
  readonly pods: readonly (readonly number[])[];
}

/** How large a world is: Services, at most 60, and at most so many packets to them. */
export interface WorldSize {
  readonly services: number;
  readonly packets: number;
}

/** Draws a cluster, and packets to it. */
export function drawWorld(seed: number, { services, packets }: WorldSize): World {
  const random = new Random(seed);
  const objects: ObjectJson[] = [NODE_OBJECT];
  const texts: WorldPacket[] = [];
  for (let index = 0; index < services; index++) {
    const made = draw(random, index);
    objects.push(...objectsOf(random, made));
    texts.push(...packetsTo(made));
  }
  while (texts.length > packets) texts.splice(random.whole(0, texts.length - 1), 1);
  return { objects, packets: texts };
}

function draw(random: Random, index: number): Made {
  const protocols = random.pick([["TCP"], ["UDP"], ["TCP", "UDP"]] as const);
  const families = random.pick([[0], [1], [0, 1], [1, 0]]);
  const isServed = random.chance(0.8);
  return {
    index,
    type: random.pick(["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"] as const),
    families,
    ports: protocols.map((protocol, at) => ({ protocol, port: 80 + at, nodePort: 30_000 + 10 * index + at })),
    isSticky: random.chance(0.2),
    hasExternalIp: random.chance(0.4),
    pods: families.map(() => isServed ? random.some([0, 1, 2, 3], 1) : []),
  };
}

function objectsOf(random: Random, made: Made): ObjectJson[] {
  const { index, type, families, ports, isSticky, hasExternalIp } = made;
  const policy = () => random.pick(["Cluster", "Local"] as const);
  const all = families.map((family) => FAMILIES[family]!);
  const name = `world/s${index}`;
  const nodePort = (port: number): string => type === "ClusterIP" ? "" : `:${port}`;
  const isRanged = type === "LoadBalancer" && random.chance(0.4);
  const external = policy();
  const ipMode = random.chance(0.2) ? "Proxy" : "VIP";
  return [
    service(name, {
      type,
      clusterIP: all[0]!.clusterIp(index),
      clusterIPs: all.map(({ clusterIp }) => clusterIp(index)),
      ipFamilies: families.map((family) => NAMES[family]!),
      ports: ports.map(({ protocol, port, nodePort: at }) =>
        `${protocol.toLowerCase()}:${port}${nodePort(at)}/${protocol}`
      ),
      internalTrafficPolicy: policy(),
      ...(hasExternalIp ? { externalIPs: all.map(({ externalIp }) => externalIp(index)) } : {}),
      ...(type === "ClusterIP" ? {} : { externalTrafficPolicy: external }),
      ...(type !== "LoadBalancer" ? {} : {
        ingress: all.map(({ ingressIp }) => ({ ip: ingressIp(index), ipMode })),
        ...(external === "Local" ? { healthCheckNodePort: 32_000 + index } : {}),
      }),
      ...(isRanged
        ? { loadBalancerSourceRanges: FAMILIES.flatMap(({ ranges }) => random.some(ranges)) }
        : {}),
      sessionAffinity: isSticky ? "ClientIP" : "None",
    }),
    ...families.flatMap((family, at) => {
      const chosen = made.pods[at]!;
      if (chosen.length === 0) return [];
      // Hints count if all endpoints have them.
      const isHinted = random.chance(0.2);
      const zones = (): string => isHinted ? ` zones=${random.pick(["z1", "z2"])}` : "";
      const targets = ports.map(({ protocol, port }) =>
        `${protocol.toLowerCase()}:${8000 + port}/${protocol}`
      );
      const endpoints = chosen.map((pod) =>
        `${FAMILIES[family]!.pods[pod]}@${NODES[pod]} ${random.pick(CONDITIONS)}${zones()}`
      );
      return [slice(`${name}.${family}`, targets, endpoints)];
    }),
  ];
}

function packetsTo({ index, type, families, ports, isSticky, hasExternalIp, pods }: Made): WorldPacket[] {
  return families.flatMap((family, at) => {
    const { clusterIp, externalIp, ingressIp, pods: ips, sources, loopback } = FAMILIES[family]!;
    const own = pods[at]!.filter((pod) => NODES[pod] === "node-a").slice(0, 1).map((pod) =>
      `${ips[pod]}@cni0`
    );
    return ports.flatMap(({ protocol, port, nodePort }) => {
      const hosts = [NODE_ADDRESSES.eth0[family]!, NODE_ADDRESSES.eth1[family]!];
      const to = [
        joinHostPort(clusterIp(index), port),
        // Nothing is there.
        ...(at === 0 ? [joinHostPort(clusterIp(index), port + 7)] : []),
        ...(hasExternalIp ? [joinHostPort(externalIp(index), port)] : []),
        ...(type === "LoadBalancer" ? [joinHostPort(ingressIp(index), port)] : []),
        ...(type === "ClusterIP" ? [] : hosts.map((ip) => joinHostPort(ip, nodePort))),
      ];
      const local = type === "ClusterIP" ? [] : [`${loopback}@node → ${joinHostPort(loopback, nodePort)}`];
      return [
        ...[...sources, ...own].flatMap((source) => to.map((destination) => `${source} → ${destination}`)),
        ...local,
      ].map((text) => ({ text: `${text}${protocol === "UDP" ? "/udp" : ""}`, isSticky }));
    });
  });
}
