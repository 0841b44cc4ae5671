/**
 * From the configuration and the Node to what decides the rules of iptables mode.
 *
 * @module
 */
import type { IptablesOptions } from "./ruleset.ts";
import { selectedMasqueradeAll, selectedMasqueradeBit } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { type LocalDetection, nodeIps, nodePortAddresses, selectLocalDetector } from "../../model/node.ts";
import type { IpFamily, NodeObject } from "../../model/objects.ts";

/** All of the options that neither the tool's version nor the node's interfaces and sysctls decide. */
export type ConfiguredIptables = Omit<IptablesOptions, "nodePortIps" | "randomFully" | "dropInvalid">;

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 */
export function configuredIptables(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
): { readonly options: ConfiguredIptables; readonly problem: LocalDetection["problem"] } {
  const ips = nodeIps(node, config.bindAddress);
  const { detector, problem } = selectLocalDetector(family, {
    mode: config.detectLocalMode,
    clusterCIDR: config.clusterCIDR,
    podCIDRs: node?.podCIDRs ?? [],
    bridgeInterface: config.detectLocal.bridgeInterface,
    interfaceNamePrefix: config.detectLocal.interfaceNamePrefix,
  });
  const options: ConfiguredIptables = {
    family,
    masqueradeMark: 2 ** selectedMasqueradeBit(config, "iptables"),
    masqueradeAll: selectedMasqueradeAll(config, "iptables"),
    detector,
    localhostNodePorts: config.iptables.localhostNodePorts,
    nodePortAddresses: nodePortAddresses(family, config.nodePortAddresses, ips),
    nodeIp: ips[family],
  };
  return { options, problem };
}
