/**
 * Derives the settings of one IP family that all modes share from the configuration and the Node.
 *
 * @module
 */
import { selectedMasqueradeAll, selectedMasqueradeBit } from "../config/defaults.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import {
  type LocalDetection,
  type LocalDetector,
  nodeIps,
  type NodePortAddresses,
  nodePortAddresses,
  selectLocalDetector,
} from "../model/node.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";

/** Settings that all modes share. */
export interface FamilySettings {
  readonly family: IpFamily;
  /** The mark itself, e.g. 0x4000 (not the bit number). */
  readonly masqueradeMark: number;
  readonly masqueradeAll: boolean;
  readonly detector: LocalDetector;
  readonly nodePortAddresses: NodePortAddresses;
  /** The node's own address of this family. */
  readonly nodeIp: string;
}

/**
 * The settings of one family; `problem` says why local traffic may not be recognised.
 *
 * @param section of the configuration that has the settings of masquerading
 * @param node null if it is not known
 */
export function familySettings(
  config: KubeProxyConfiguration,
  section: "iptables" | "nftables",
  family: IpFamily,
  node: NodeObject | null,
): { readonly settings: FamilySettings; readonly problem: LocalDetection["problem"] } {
  const ips = nodeIps(node, config.bindAddress);
  const { detector, problem } = selectLocalDetector(family, {
    mode: config.detectLocalMode,
    clusterCIDR: config.clusterCIDR,
    podCIDRs: node?.podCIDRs ?? [],
    bridgeInterface: config.detectLocal.bridgeInterface,
    interfaceNamePrefix: config.detectLocal.interfaceNamePrefix,
  });
  const settings: FamilySettings = {
    family,
    masqueradeMark: 2 ** selectedMasqueradeBit(config, section),
    masqueradeAll: selectedMasqueradeAll(config, section),
    detector,
    nodePortAddresses: nodePortAddresses(family, config.nodePortAddresses, ips),
    nodeIp: ips[family],
  };
  return { settings, problem };
}

/**
 * The masquerade mark as rules write it: `0x` and eight hexadecimal digits.
 *
 * @throws {RangeError} if the mark is not exactly one of 32 bits
 */
export function formatMark(mark: number): string {
  if (!Number.isInteger(mark) || mark < 1 || mark > 0x8000_0000 || !Number.isInteger(Math.log2(mark))) {
    throw new RangeError(`Masquerade mark must be one bit of 32: got ${mark}`);
  }
  return "0x" + mark.toString(16).padStart(8, "0");
}
