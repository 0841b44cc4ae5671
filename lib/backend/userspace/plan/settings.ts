/**
 * From the configuration, the Node and the node's interfaces to what decides the rules of userspace mode.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { isLoopback, isUnspecified, parseIp } from "../../../model/ip.ts";
import type { LocalDetection, NodePortAddresses } from "../../../model/node.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import { familySettings } from "../../family_settings.ts";
import type { UserspaceOptions } from "./plan.ts";

/** All of the options that neither iptables nor the addresses that serve node ports decide. */
export type ConfiguredUserspace =
  & Omit<UserspaceOptions, "family" | "nodePortIps" | "has">
  & { readonly nodePortAddresses: NodePortAddresses };

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 * @param interfaceIps addresses of all interfaces
 */
export function configuredUserspace(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
  interfaceIps: readonly string[],
): { readonly options: ConfiguredUserspace; readonly problem: LocalDetection["problem"] } {
  const { settings, problem } = familySettings(config, "iptables", family, node);
  const bind = parseIp(config.bindAddress);
  const listenIp = bind === null || isUnspecified(bind) || bind.family !== family ? null : bind.text;
  const { detector, nodePortAddresses } = settings;
  const nodeIp = reachable(settings.nodeIp, family, interfaceIps);
  return { options: { listenIp, nodeIp, detector, nodePortAddresses }, problem };
}

/**
 * An address for the node's own packets. Answers of UDP come from the address that the kernel prefers towards the client, which is none
 * of loopback's unless the client is there, too: where the Node has no address, that of an interface is taken.
 */
function reachable(nodeIp: string, family: IpFamily, interfaceIps: readonly string[]): string {
  if (!isLoopback(parseIp(nodeIp)!)) return nodeIp;
  const found = interfaceIps.map((text) => parseIp(text)).find((ip) =>
    ip?.family === family && !isLoopback(ip) && !ip.text.startsWith("fe80:")
  );
  return found?.text ?? nodeIp;
}
