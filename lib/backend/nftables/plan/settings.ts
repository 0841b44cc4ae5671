/**
 * From the configuration and the Node to what decides the rules of nftables mode.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { parseCidr } from "../../../model/ip.ts";
import type { LocalDetection } from "../../../model/node.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import { familySettings } from "../../family_settings.ts";
import type { NftablesOptions } from "./ruleset.ts";

/** All of the options that neither the node's interfaces, nor its kernel, nor the cluster's ServiceCIDRs decide. */
export type ConfiguredNftables = Omit<NftablesOptions, "nodePortIps" | "serviceCidrs" | "objectComments">;

/** Also when the mode was chosen from `auto`, and so not yet known when defaults were filled in. */
const DEFAULT_NODE_PORT_ADDRESSES: readonly string[] = ["primary"];

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 */
export function configuredNftables(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
): { readonly options: ConfiguredNftables; readonly problem: LocalDetection["problem"] } {
  const addresses = config.nodePortAddresses ?? [];
  const { settings, problem } = familySettings(
    { ...config, nodePortAddresses: addresses.length > 0 ? addresses : [...DEFAULT_NODE_PORT_ADDRESSES] },
    "nftables",
    family,
    node,
  );
  return { options: { ...settings, trafficCounters: config.kproxy.trafficCounters }, problem };
}

/** Those of one family, as nft prints them: a network of one address without its length. */
export function networksOfFamily(networks: readonly string[], family: IpFamily): readonly string[] {
  return networks.flatMap((text) => {
    const cidr = parseCidr(text);
    if (cidr === null || cidr.family !== family) return [];
    return [cidr.prefixLength === cidr.bytes.length * 8 ? text.slice(0, text.indexOf("/")) : text];
  });
}
