/**
 * Planning that all modes share: from the configuration and the Node to the settings of one family's rules, and from
 * the state to the Services that are to be planned.
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
import type { IpFamily, NamespacedName, NodeObject } from "../model/objects.ts";
import { cidrContains, type Ip, parseCidr } from "../model/ip.ts";
import type { Changed, Endpoint, ProxyState, ServicePort, ServicePortKey } from "../model/state.ts";

/** Settings and facts of the node that decide the rules of one family in every mode. */
export interface FamilySettings {
  /** The family of all addresses in the rules. */
  readonly family: IpFamily;
  /** The mark itself, e.g. 0x4000 (not the bit number). */
  readonly masqueradeMark: number;
  /** True: every packet to a cluster IP is masqueraded. */
  readonly masqueradeAll: boolean;
  /** How packets of pods are recognised. */
  readonly detector: LocalDetector;
  /** The addresses that node ports are served on. */
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

/** Plans the rules of one Service with at least one port; null if it is to be left out. */
type PlanService<Rules> = (
  ports: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  name: NamespacedName,
) => Rules | null;

/**
 * Plans the changed Services (all for `"all"`), by default in the order of their names. One that is gone, or has no port of this family, is
 * null. One step per Service, so that other work has its turn: there are thousands, or one that is as large.
 *
 * @param family of the options of the plan
 * @throws {RangeError} if the state is of another family
 */
export function* planServicesInSteps<Rules>(
  state: ProxyState,
  changed: Changed,
  family: IpFamily,
  planService: PlanService<Rules>,
  order: (names: readonly NamespacedName[]) => readonly NamespacedName[] = (names) => names.toSorted(),
): Steps<Map<NamespacedName, Rules | null>> {
  if (state.family !== family) {
    throw new RangeError(`State and options must be of one family: got ${state.family} and ${family}`);
  }
  const services = new Map<NamespacedName, Rules | null>();
  for (const name of order([...changed === "all" ? state.services.keys() : changed])) {
    const ports = state.services.get(name);
    services.set(
      name,
      ports === undefined || ports.length === 0 ? null : planService(ports, state.endpoints.get(name), name),
    );
    yield;
  }
  return services;
}

/** The iptables match of packets from pods of this node or cluster; null if nothing distinguishes them. */
export function podMatch(detector: LocalDetector): string | null {
  switch (detector.kind) {
    case "none":
      return null;
    case "cidr":
      return `-s ${detector.cidr}`;
    case "interface":
      return `-i ${detector.name}`;
    case "interfacePrefix":
      return `-i ${detector.prefix}+`;
  }
}

/**
 * True if one of the source ranges of a Service lets the node itself in.
 *
 * @param nodeIp the node's own address; null if it has none of this family
 * @throws {RangeError} if a range is not a CIDR
 */
export function letsNodeIn({ text, loadBalancerSourceRanges }: ServicePort, nodeIp: Ip | null): boolean {
  const ranges = loadBalancerSourceRanges.map((range) => {
    const cidr = parseCidr(range);
    if (cidr !== null) return cidr;
    throw new RangeError(`Source range of Service port "${text}" must be a CIDR: got "${range}"`);
  });
  return nodeIp !== null && ranges.some((cidr) => cidrContains(cidr, nodeIp));
}

/** Work that pauses between steps. */
export type Steps<T> = Generator<void, T, void>;

/** Runs all steps at once. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
