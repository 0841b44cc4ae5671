/**
 * Packets that stand for the traffic of a ServicePort: to each of its destinations from a pod, from the node and from the world.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { parseCidr, parseIp } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ServicePort } from "../../model/state.ts";
import type { Packet } from "../../sim/flow.ts";
import { ownAddressOf, packetProtocol, WORLD } from "../trace/packet.ts";

/** Where probes come from, and what is the node's. */
export interface ProbeSources {
  readonly sources: readonly (readonly [source: string, inInterface: string])[];
  /** Null: none of this family is known. */
  readonly nodeAddress: string | null;
}

/** One source of each kind. */
export function probeSources(
  family: IpFamily,
  { config, nodeAddresses, podInterface }: {
    readonly config: KubeProxyConfiguration;
    readonly nodeAddresses: readonly string[];
    readonly podInterface: string;
  },
): ProbeSources {
  const nodeAddress = ownAddressOf(family, nodeAddresses);
  const network = config.clusterCIDR.split(",").map(parseCidr).find((cidr) => cidr?.family === family);
  const pod = network == null ? null : addressIn(network.text);
  return {
    sources: [
      ...(pod === null ? [] : [[pod, podInterface] as const]),
      [WORLD[family], podInterface === "eth0" ? "eth1" : "eth0"],
      ...(nodeAddress === null ? [] : [[nodeAddress, ""] as const]),
    ],
    nodeAddress,
  };
}

/** `10.244.0.0/16` → `10.244.0.5`, `fd00::/56` → `fd00::5`. */
function addressIn(network: string): string | null {
  const address = network.slice(0, network.lastIndexOf("/"));
  const text = address.endsWith("::") ? `${address}5` : address.replace(/[0-9a-f]+$/i, "5");
  return parseIp(text)?.text ?? null;
}

/** The packets of one port. */
export function probesOf(port: ServicePort, { sources, nodeAddress }: ProbeSources): readonly Packet[] {
  const ips = [port.clusterIP, ...port.externalIPs, ...port.loadBalancerVIPs];
  const destinations = ips.map((ip) => [ip, port.port] as const);
  if (port.nodePort !== 0 && nodeAddress !== null) destinations.push([nodeAddress, port.nodePort]);
  const protocol = packetProtocol(port.protocol);
  return destinations.flatMap(([destination, to]) =>
    sources.map(([source, inInterface]): Packet => ({
      source,
      inInterface,
      destination,
      port: to,
      protocol,
      state: "NEW",
      mark: 0,
    }))
  );
}
