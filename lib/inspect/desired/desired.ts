/**
 * Desired rules of a node: from configuration and objects to the state, the plan and the rules of each family; and the node's and its pods'
 * addresses and names.
 *
 * @module
 */
import { DEVICE } from "../../backend/ipvs/plan/ruleset.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { UnsupportedError } from "../../errors.ts";
import { ChangeTracker } from "../../model/change_tracker.ts";
import { eachUnserved, type UnservedDestination } from "../../model/destination_claims.ts";
import { parseCidr, parseIp } from "../../model/ip.ts";
import { type LocalDetection, nodeIps, nodeZone, ownAddresses } from "../../model/node.ts";
import { type ApiObject, FAMILIES, type IpFamily, type NodeObject } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import { serviceNetworks } from "../../model/cluster_networks.ts";
import type { NodeFacts, ProxyState } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import type { Comparison, DifferenceList } from "../check/check.ts";

/** Modes whose rules can be inspected. */
export const RULES_MODES: readonly RulesMode[] = ["iptables", "nftables", "ipvs", "userspace"];

/** A mode whose rules follow from the objects alone. */
export type RenderedMode = "iptables" | "ipvs" | "nftables";

export const RENDERED_MODES: readonly RenderedMode[] = ["iptables", "ipvs", "nftables"];

/** A mode whose rules can be inspected. Those of userspace lead to ports that a running kproxy has opened. */
export type RulesMode = RenderedMode | "userspace";

/** State of the objects, before any mode turns it into rules. */
export interface DesiredState {
  readonly nodeName: string;
  /** The node's own Node; null if there is none of its name. */
  readonly node: NodeObject | null;
  /** Other Nodes among the objects. */
  readonly otherNodes: readonly NodeObject[];
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
  readonly serviceCidrs: readonly string[];
  /** Destinations of Services that are not served. */
  readonly unserved: readonly UnservedDestination[];
  /** The objects that the state was made from, as far as they are still at hand. */
  readonly objects: readonly ApiObject[];
}

/** Facts about the machine that rules depend on. */
export interface MachineFacts {
  /** Addresses of all devices; null: the machine is not read, and the Node's addresses are used. */
  readonly addresses: readonly DeviceAddress[] | null;
  /** `net.netfilter.nf_conntrack_tcp_be_liberal`; null: as configured. */
  readonly tcpBeLiberal: boolean | null;
  /** True if the `nfacct` counters of iptables mode exist. */
  readonly nfacct: boolean;
}

export const UNKNOWN_MACHINE: MachineFacts = { addresses: null, tcpBeLiberal: null, nfacct: false };

/** Everything that the desired rules depend on. */
export interface DesiredInput extends DesiredState {
  readonly config: KubeProxyConfiguration;
  readonly machine: MachineFacts;
  /** Receives warnings, one sentence each. */
  readonly warn: (sentence: string) => void;
  /** Known proxy ports of userspace mode. */
  readonly portals?: NodePortals;
}

/** The name of a portal in its family, e.g. `shop/web:http/TCP cluster`. */
export function portalName(servicePort: string, protocol: string, policy: string): string {
  return `${servicePort}/${protocol.toUpperCase()} ${policy.toLowerCase()}`;
}

/** {@linkcode portalName} → port, of one family. */
export function portsByName(portals: NodePortals | undefined, family: IpFamily): ReadonlyMap<string, number> {
  const own = portals?.portals.filter((portal) => portal.family === family) ?? [];
  return new Map(
    own.map(({ servicePort, protocol, policy, port }) => [portalName(servicePort, protocol, policy), port]),
  );
}

/** Configuration that decides which addresses of Services are served. */
export type AddressSettings = Pick<KubeProxyConfiguration, "bindAddress"> & {
  readonly kproxy: Pick<KubeProxyConfiguration["kproxy"], "externalIPPolicy">;
};

/**
 * Folds objects into a state for each family; `report` receives why parts of objects are left out.
 *
 * @param config null: all addresses are served that kube-proxy serves
 */
export function stateOfObjects(
  objects: readonly ApiObject[],
  nodeName: string,
  report: (problem: string) => void,
  config: AddressSettings | null = null,
): DesiredState {
  const nodes = objects.filter((object) => object.kind === "Node");
  const node = nodes.find(({ name }) => name === nodeName) ?? null;
  const otherNodes = nodes.filter(({ name }) => name !== nodeName);
  const facts: NodeFacts = { name: nodeName, zone: nodeZone(node) };
  const unserved: UnservedDestination[] = [];
  const states = new Map(FAMILIES.map((family) => {
    const tracker = new ChangeTracker({
      family,
      node: facts,
      report,
      ...(config === null ? {} : { externalIPPolicy: config.kproxy.externalIPPolicy }),
    });
    tracker.setNodeAddresses(ownAddresses(node, config?.bindAddress ?? ""));
    for (const object of objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
    const { state } = tracker.checkout();
    for (const one of eachUnserved(tracker.unserved())) unserved.push(one);
    for (const [service, reason] of state.tooLarge) {
      unserved.push({ service, destination: `everything of ${family}`, reason });
    }
    return [family, state];
  }));
  const serviceCidrs = serviceNetworks(objects.filter((object) => object.kind === "ServiceCIDR"));
  return { nodeName, node, otherNodes, states, serviceCidrs, unserved, objects };
}

export function stateOf({ states }: DesiredState, family: IpFamily): ProxyState {
  const state = states.get(family);
  if (state === undefined) throw new RangeError(`No state of family ${family}`);
  return state;
}

const LOOPBACK_IPS: readonly string[] = ["127.0.0.1", "::1"];

/**
 * Node addresses that rules depend on, of both families. If the machine is not read, its devices are not the node's:
 * the Node's addresses are used.
 */
export function hostAddresses({ machine, node }: DesiredInput, nodeIp: string): readonly string[] {
  if (machine.addresses !== null) return machine.addresses.map(({ address }) => address);
  return [...(node?.addresses ?? []).map(({ address }) => address), nodeIp, ...LOOPBACK_IPS];
}

/** A family's settings; their problem goes to `warn`. */
export function warned<Options>(
  { options, problem }: { readonly options: Options; readonly problem: LocalDetection["problem"] },
  { warn }: DesiredInput,
  family: IpFamily,
): Options {
  if (problem?.kind === "wrongFamily") warn(`${family}: ${problem.message}`);
  return options;
}

/**
 * Mode of a configuration. For `auto`, which only the node can decide: the mode found there, else iptables.
 *
 * @param doing for the error message: `Rendering`
 * @param found mode in force on the node; null: not read, or none
 * @throws {UnsupportedError} if kproxy does not make that mode's rules
 */
export function rulesModeOf(
  { mode }: KubeProxyConfiguration,
  doing: string,
  found: RulesMode | null = null,
): RulesMode {
  if (mode === "auto") return found ?? "iptables";
  const known = RULES_MODES.find((one) => one === mode);
  if (known !== undefined) return known;
  throw unknownMode(mode, `${doing} proxy mode ${mode} is not in this release; it has`, RULES_MODES);
}

/**
 * Mode of a configuration, among those whose rules follow from the objects alone.
 *
 * @param doing for the error message
 * @throws {UnsupportedError} if it is another mode
 */
export function renderedModeOf(config: KubeProxyConfiguration, doing: string = "Rendering"): RenderedMode {
  const mode = rulesModeOf(config, doing);
  if (mode !== "userspace") return mode;
  const why =
    `${doing} proxy mode userspace is not possible, its rules lead to ports that kproxy opens when it runs; possible with`;
  throw unknownMode(mode, why, RULES_MODES.filter((one) => one !== mode));
}

function unknownMode(mode: string, why: string, modes: readonly string[]): UnsupportedError {
  const known = modes.join(", ");
  return new UnsupportedError("kproxy", `proxy mode ${known}`, mode, { message: `${why}: ${known}` });
}

/** Functions to inspect one mode's rules. */
export interface InspectedMode {
  /** Rules in an empty kernel after a full sync. */
  readonly rules: (input: DesiredInput, family: IpFamily) => RulesetSnapshot;
  /** Reports differences of the live rules to the list. */
  readonly compare: (comparison: Comparison, list: DifferenceList) => void | Promise<void>;
}

/** Loaders of the modes: one is used, and the planners of the others take time to load. */
export const INSPECTED_MODES: Readonly<Record<RulesMode, () => Promise<InspectedMode>>> = {
  iptables: () => import("../modes/iptables.ts"),
  ipvs: () => import("../modes/ipvs.ts"),
  nftables: () => import("../modes/nftables.ts"),
  userspace: () => import("../modes/userspace.ts"),
};

/** Desired rules of a family. */
export async function desiredRules(
  mode: RulesMode,
  input: DesiredInput,
  family: IpFamily,
): Promise<RulesetSnapshot> {
  return (await INSPECTED_MODES[mode]()).rules(input, family);
}

/** All known node addresses, of both families; the Node's own come first. */
export function knownNodeAddresses(
  node: NodeObject | null,
  read: readonly DeviceAddress[],
  { bindAddress }: KubeProxyConfiguration,
): readonly string[] {
  const { primaryFamily, IPv4, IPv6 } = nodeIps(node, bindAddress);
  const own = primaryFamily === "IPv4" ? [IPv4, IPv6] : [IPv6, IPv4];
  // The device of IPVS mode has the Services' addresses.
  const found = read.filter(({ device }) => device !== DEVICE).map(({ address }) => address);
  return [...new Set([...own, ...(node?.addresses ?? []).map(({ address }) => address), ...found])];
}

/** Incoming interface of pods' packets, if no route gives it. */
export function podInterface({ detectLocalMode, detectLocal }: KubeProxyConfiguration): string {
  if (detectLocalMode === "BridgeInterface" && detectLocal.bridgeInterface !== "") {
    return detectLocal.bridgeInterface;
  }
  if (detectLocalMode === "InterfaceNamePrefix" && detectLocal.interfaceNamePrefix !== "") {
    return `${detectLocal.interfaceNamePrefix}0`;
  }
  return "cni0";
}

/** Address `number` of the cluster CIDR: 5 of `10.244.0.0/16` is `10.244.0.5`, of `fd00::/56` `fd00::5`. Null: unknown. */
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

/** Nodes with one of these addresses. */
export function nodesAt(nodes: readonly NodeObject[], addresses: readonly string[]): readonly NodeObject[] {
  return nodes.filter((node) => node.addresses.some(({ address }) => addresses.includes(address)));
}

/** Warns if no Node has this node's name, which decides local endpoints, and whose labels decide topology hints. */
export function nodeNameFinding(
  { nodeName, node, otherNodes }: Pick<DesiredState, "nodeName" | "node" | "otherNodes">,
  nodeAddresses: readonly string[],
): readonly string[] {
  if (node !== null || otherNodes.length === 0) return [];
  const [mine] = nodesAt(otherNodes, nodeAddresses);
  const lack = `There is no Node ${nodeName}, by whose name policies and hints are decided here`;
  return [
    mine === undefined
      ? lack
      : `${lack}; Node ${mine.name} has an address of this machine: --hostname-override=${mine.name}`,
  ];
}
