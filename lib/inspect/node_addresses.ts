/**
 * What a packet of the node, or of its pods, is known by.
 *
 * @module
 */
import { DEVICE } from "../backend/ipvs/plan/ruleset.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { nodeIps } from "../model/node.ts";
import type { NodeObject } from "../model/objects.ts";
import type { DeviceAddress } from "../netfilter/ip_batch.ts";

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

/** What packets of pods come in through, where nothing tells. */
export function podInterface({ detectLocalMode, detectLocal }: KubeProxyConfiguration): string {
  if (detectLocalMode === "BridgeInterface" && detectLocal.bridgeInterface !== "") {
    return detectLocal.bridgeInterface;
  }
  if (detectLocalMode === "InterfaceNamePrefix" && detectLocal.interfaceNamePrefix !== "") {
    return `${detectLocal.interfaceNamePrefix}0`;
  }
  return "cni0";
}
