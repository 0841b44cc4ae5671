/**
 * From the configuration and the Node to what decides the rules of iptables mode.
 *
 * @module
 */
import type { IptablesOptions } from "./ruleset.ts";
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import type { LocalDetection } from "../../../model/node.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import { familySettings } from "../../family_settings.ts";

/** All of the options that neither the tool's version nor the node's interfaces and sysctls decide. */
export type ConfiguredIptables = Omit<
  IptablesOptions,
  "nodePortIps" | "randomFully" | "dropInvalid" | "nfacct"
>;

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
  const { settings, problem } = familySettings(config, "iptables", family, node);
  return { options: { ...settings, localhostNodePorts: config.iptables.localhostNodePorts }, problem };
}
