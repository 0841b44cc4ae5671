/**
 * By what the node and its pods are known, to packets and to the objects.
 *
 * @module
 */
import { DEVICE } from "../backend/ipvs/plan/ruleset.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { parseCidr, parseIp } from "../model/ip.ts";
import { nodeIps } from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import type { DeviceAddress } from "../netfilter/ip_batch.ts";
import type { DesiredState } from "./desired/desired.ts";

/** All addresses of the node that are known, of both families; the Node's own come first. */
export function knownNodeAddresses(
  node: NodeObject | null,
  read: readonly DeviceAddress[],
  { bindAddress }: KubeProxyConfiguration,
): readonly string[] {
  const { primaryFamily, IPv4, IPv6 } = nodeIps(node, bindAddress);
  const own = primaryFamily === "IPv4" ? [IPv4, IPv6] : [IPv6, IPv4];
  // Addresses of Services are among IPVS' own.
  const found = read.filter(({ device }) => device !== DEVICE).map(({ address }) => address);
  return [...new Set([...own, ...(node?.addresses ?? []).map(({ address }) => address), ...found])];
}

/** What packets of pods come in through, where no route says. */
export function podInterface({ detectLocalMode, detectLocal }: KubeProxyConfiguration): string {
  if (detectLocalMode === "BridgeInterface" && detectLocal.bridgeInterface !== "") {
    return detectLocal.bridgeInterface;
  }
  if (detectLocalMode === "InterfaceNamePrefix" && detectLocal.interfaceNamePrefix !== "") {
    return `${detectLocal.interfaceNamePrefix}0`;
  }
  return "cni0";
}

/** An address of the cluster CIDR: number 5 of `10.244.0.0/16` is `10.244.0.5`, of `fd00::/56` `fd00::5`. Null: none is known. */
export function podAddress(
  { clusterCIDR }: Pick<KubeProxyConfiguration, "clusterCIDR">,
  family: IpFamily,
  number: number,
): string | null {
  const cidrs = clusterCIDR.split(",").map((text) => parseCidr(text.trim()));
  const network = cidrs.find((cidr) => cidr?.family === family)?.text.replace(/\/\d+$/, "");
  if (network === undefined) return null;
  const text = network.endsWith("::")
    ? `${network}${number}`
    : network.replace(/[0-9a-f]+$/i, String(number));
  return parseIp(text)?.text ?? null;
}

/** By the name of the node it is decided which endpoints are its own, and by its Node's labels which hints are for it. */
export function nodeNameFinding(
  { nodeName, node, otherNodes }: Pick<DesiredState, "nodeName" | "node" | "otherNodes">,
  nodeAddresses: readonly string[],
): readonly string[] {
  if (node !== null || otherNodes.length === 0) return [];
  const mine = otherNodes.find(({ addresses }) =>
    addresses.some(({ address }) => nodeAddresses.includes(address))
  );
  const lack = `There is no Node ${nodeName}, by whose name policies and hints are decided here`;
  return [
    mine === undefined
      ? lack
      : `${lack}; Node ${mine.name} has an address of this machine: --hostname-override=${mine.name}`,
  ];
}
