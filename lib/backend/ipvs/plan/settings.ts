/**
 * From the configuration, the Node and the node's devices to what decides the rules of IPVS mode.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { cidrContains, isLoopback, parseCidr, parseIp } from "../../../model/ip.ts";
import { type LocalDetection, matchingNodeIps, type NodePortAddresses } from "../../../model/node.ts";
import { compareBytes } from "../../../model/names.ts";
import type { IpFamily, NodeObject } from "../../../model/objects.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";
import { familySettings } from "../../family_settings.ts";
import { DEVICE, type IpvsOptions } from "./ruleset.ts";

const DEFAULT_SCHEDULER = "rr";

/** All of the options that neither the tools' versions, the kernel nor the node's devices decide. */
export type ConfiguredIpvs =
  & Omit<IpvsOptions, "schedulers" | "nodePortIps" | "hostIps">
  & {
    readonly nodePortAddresses: NodePortAddresses;
  };

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 * @throws {SyntaxError} if one of the networks is none
 */
export function configuredIpvs(
  config: KubeProxyConfiguration,
  family: IpFamily,
  node: NodeObject | null,
): { readonly options: ConfiguredIpvs; readonly problem: LocalDetection["problem"] } {
  // The section of iptables mode has the settings of masquerading, as in kube-proxy.
  const { settings, problem } = familySettings(config, "iptables", family, node);
  const options: ConfiguredIpvs = {
    ...settings,
    scheduler: config.ipvs.scheduler === "" ? DEFAULT_SCHEDULER : config.ipvs.scheduler,
    excludeCIDRs: (config.ipvs.excludeCIDRs ?? []).flatMap((text) => {
      const cidr = parseCidr(text);
      if (cidr === null) throw new SyntaxError(`"${text}" is not a CIDR such as 192.168.0.0/16 or fd00::/64`);
      return cidr.family === family ? [cidr] : [];
    }),
  };
  return { options, problem };
}

/**
 * The node's own addresses of one family: those of all devices but ours, loopback and link-local ones of IPv6 left out;
 * sorted, each once.
 */
export function hostIps(family: IpFamily, addresses: readonly DeviceAddress[]): readonly string[] {
  const own = addresses.flatMap((one) => {
    const ip = one.device === DEVICE || one.family !== family ? null : parseIp(one.address);
    if (ip === null || isLoopback(ip)) return [];
    return family === "IPv6" && LINK_LOCAL !== null && cidrContains(LINK_LOCAL, ip) ? [] : [ip.text];
  });
  return [...new Set(own)].sort(compareBytes);
}

const LINK_LOCAL = parseCidr("fe80::/10");

/**
 * Those of the node's own addresses that get a virtual server for every node port, sorted. Bridges and addresses of the
 * pod network are among them if all addresses are asked for.
 */
export function nodePortIps(addresses: NodePortAddresses, ownIps: readonly string[]): readonly string[] {
  return addresses.matchAll ? ownIps : matchingNodeIps(addresses, ownIps);
}
