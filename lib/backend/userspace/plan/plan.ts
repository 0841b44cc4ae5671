/**
 * The planner of userspace mode: the portals, which are ports of kproxy's own, and the rules that lead packets to them.
 *
 * @module
 */
import { categorizeEndpoints } from "../../../model/endpoint.ts";
import { isExternallyAccessible } from "../../../model/service_port.ts";
import type { LocalDetection, LocalDetector, NodePortAddresses } from "../../../model/node.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../../../model/objects.ts";
import type { Changed, Endpoint, ProxyState, ServicePort, ServicePortKey } from "../../../model/state.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { quoteWord } from "../../../netfilter/iptables_rule.ts";
import { atOnce, familySettings, planServicesInSteps, podMatch, type Steps } from "../../planning.ts";
import {
  NODE_PORTS_CONTAINER,
  NODE_PORTS_HOST,
  NODE_PORTS_INPUT,
  PORTALS_CONTAINER,
  PORTALS_FIREWALL,
  PORTALS_HOST,
} from "./chains.ts";
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { isLoopback, isUnspecified, parseIp } from "../../../model/ip.ts";

/** Names one portal among all of its family: the key of a ServicePort and which of its endpoints it leads to. */
export type PortalId = string;

/** The protocols that a process can forward. */
export type PortalProtocol = "TCP" | "UDP";

/** Which endpoints a portal leads to: those for traffic under policy Cluster, or those of this node. */
export type PortalPolicy = "cluster" | "local";

/** An endpoint to which a portal may lead. */
export interface PortalEndpoint {
  readonly ip: string;
  readonly port: number;
}

/** A port of kproxy's own that leads to some endpoints of one ServicePort. */
export interface Portal {
  readonly id: PortalId;
  /** `ns/name:port`, for logs. */
  readonly text: string;
  readonly protocol: PortalProtocol;
  /** Policy that selects the endpoints. */
  readonly policy: PortalPolicy;
  readonly endpoints: readonly PortalEndpoint[];
  /** Seconds of ClientIP affinity; 0 without affinity. */
  readonly stickyMaxAgeSeconds: number;
}

/** A rule about a portal, whose port is not known yet. */
export interface PortalRule {
  readonly table: Table;
  readonly chain: string;
  readonly portal: PortalId;
  /** Without the leading `-A CHAIN `. */
  readonly rule: (port: number) => string;
}

/** Portals and rules of one Service. */
export interface ServicePortals<Wanted extends Portal = Portal> {
  readonly portals: readonly Wanted[];
  /** In the order in which they are written. */
  readonly rules: readonly PortalRule[];
  /** Ports that this mode cannot serve, and why. */
  readonly unserved: readonly string[];
}

/** Portals and rules of the changed Services (or all); null: the Service is gone. */
export type UserspacePlan<Wanted extends Portal = Portal> = ReadonlyMap<
  NamespacedName,
  ServicePortals<Wanted> | null
>;

/** Settings and facts of the node that decide the rules of one family. */
export interface UserspaceOptions {
  readonly family: IpFamily;
  /** The address that the portals listen on; null: all of them. */
  readonly listenIp: string | null;
  /** The node's own address of this family: where its own packets are led if the portals listen on all. */
  readonly nodeIp: string;
  /** The addresses that serve node ports; null: all local ones. */
  readonly nodePortIps: readonly string[] | null;
  /** How packets of pods of this node are recognised, to which policy Local for external traffic does not apply. */
  readonly detector: LocalDetector;
  /** Optional features of the node's iptables. */
  readonly has: IptablesAbilities;
}

/** Features of iptables that the rules can do without. */
export interface IptablesAbilities {
  /** Target DNAT; without it the node's own packets are redirected, which leads them to a loopback address. */
  readonly dnat: boolean;
  /** Match physdev, which spares packets of pods on a bridge. */
  readonly physdev: boolean;
  /** Match conntrack and target REJECT; without them the portals take what comes to them directly, too. */
  readonly firewall: boolean;
}

/**
 * Portals and rules of the changed Services (all of them for `"all"`). They depend on the state only.
 *
 * @throws {RangeError} if the options are of another family than the state
 */
export function planUserspace(
  state: ProxyState,
  changed: Changed,
  options: UserspaceOptions,
): UserspacePlan {
  return atOnce(planUserspaceInSteps(state, changed, options));
}

/** As {@linkcode planUserspace}, with a step after each Service. */
export function* planUserspaceInSteps(
  state: ProxyState,
  changed: Changed,
  options: UserspaceOptions,
): Steps<UserspacePlan> {
  return yield* planServicesInSteps(
    state,
    changed,
    options.family,
    (ports, endpoints) => planService(ports, endpoints, state, options),
  );
}

/** Message about a port that no process can forward. */
export function unservedText({ text }: ServicePort): string {
  return `${text}: mode userspace cannot forward SCTP`;
}

/** A portal that leads to these endpoints of a port. */
export function portalOf(port: ServicePort, policy: PortalPolicy, endpoints: readonly Endpoint[]): Portal {
  return {
    id: portalId(port, policy),
    text: port.text,
    protocol: port.protocol as PortalProtocol,
    policy,
    endpoints: endpoints.map(({ ip, port }) => ({ ip, port })),
    stickyMaxAgeSeconds: port.stickyMaxAgeSeconds,
  };
}

function portalId({ key }: ServicePort, reach: PortalPolicy): PortalId {
  return reach === "cluster" ? key : `${key} local`;
}

function planService(
  ports: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  { node }: ProxyState,
  options: UserspaceOptions,
): ServicePortals {
  const served = ports.filter(({ protocol }) => protocol !== "SCTP");
  return {
    portals: served.flatMap((port) => {
      const found = categorizeEndpoints(endpoints?.get(port.key) ?? [], port, node);
      return [...reachesOf(port)].map((reach) => portalOf(port, reach, found[reach]));
    }),
    rules: served.flatMap((port) => new PortRules(port, options).rules),
    unserved: ports.filter((port) => !served.includes(port)).map(unservedText),
  };
}

function policyOf(isLocal: boolean): PortalPolicy {
  return isLocal ? "local" : "cluster";
}

/** Packets of the node and its pods to external addresses follow policy Cluster. */
function reachesOf(port: ServicePort): ReadonlySet<PortalPolicy> {
  const internal = policyOf(port.internalPolicyLocal);
  const external = policyOf(port.externalPolicyLocal);
  return new Set(isExternallyAccessible(port) ? [internal, external, "cluster"] : [internal]);
}

/** A redirection of some packets of a port. */
interface Way {
  readonly chain: string;
  /** Further matches, with a blank at the end. */
  readonly match: string;
  readonly reach: PortalPolicy;
  /** Default: the port of the Service. */
  readonly dport?: number;
}

/** The rules of one ServicePort. */
class PortRules {
  readonly rules: PortalRule[] = [];
  readonly #port: ServicePort;
  readonly #options: UserspaceOptions;
  /** Policy for its traffic from outside. */
  readonly #reach: PortalPolicy;

  constructor(port: ServicePort, options: UserspaceOptions) {
    this.#port = port;
    this.#options = options;
    this.#reach = policyOf(port.externalPolicyLocal);
    // Whatever the Service's type is, no client reaches its portals by their ports.
    if (options.has.firewall) {
      const to = options.listenIp === null ? "" : this.#to(options.listenIp);
      for (const reach of reachesOf(port)) {
        this.#add("filter", PORTALS_FIREWALL, reach, (dport) => `${to}--dport ${dport} -j REJECT`);
      }
    }
    const [match, reach] = [this.#to(port.clusterIP), policyOf(port.internalPolicyLocal)];
    this.#redirect({ chain: PORTALS_CONTAINER, match, reach });
    this.#addHost({ chain: PORTALS_HOST, match, reach });
    if (!isExternallyAccessible(port)) return;
    for (const ip of port.externalIPs) this.#addExternalIp(ip);
    for (const ip of port.loadBalancerVIPs) this.#addLoadBalancerIp(ip);
    if (port.nodePort !== 0) this.#addNodePort(port.nodePort);
  }

  #addExternalIp(ip: string): void {
    const to = this.#to(ip);
    const local = `${to}-m addrtype --dst-type LOCAL `;
    const matches = this.#options.has.physdev ? [`${to}-m physdev ! --physdev-is-in `, local] : [to];
    for (const match of matches) this.#addContainer(PORTALS_CONTAINER, match);
    this.#addHost({ chain: PORTALS_HOST, match: local, reach: "cluster" });
  }

  /** Packets from other sources are not redirected. */
  #addLoadBalancerIp(ip: string): void {
    const ranges = this.#port.loadBalancerSourceRanges;
    const sources = ranges.length === 0 ? [""] : ranges.map((range) => `-s ${range} `);
    for (const source of sources) this.#addContainer(PORTALS_CONTAINER, source + this.#to(ip));
    // The node itself reaches its load balancers, whatever their sources are.
    this.#addHost({ chain: PORTALS_HOST, match: this.#to(ip), reach: "cluster" });
  }

  #addNodePort(dport: number): void {
    const { nodePortIps } = this.#options;
    const matches = nodePortIps === null ? [""] : nodePortIps.map((ip) => this.#to(ip));
    for (const match of matches) {
      this.#addContainer(NODE_PORTS_CONTAINER, match, dport);
      this.#addHost({ chain: NODE_PORTS_HOST, match, reach: "cluster", dport });
    }
    for (const reach of matches.length === 0 ? [] : new Set([this.#reach, "cluster"] as const)) {
      this.#add(
        "filter",
        NODE_PORTS_INPUT,
        reach,
        (dport) => `--dport ${dport} -m state --state NEW -j ACCEPT`,
      );
    }
  }

  /** Redirects packets not from the node; where policy Local applies, those of pods of this node come first. */
  #addContainer(chain: string, match: string, dport?: number): void {
    const own = this.#reach === "local" ? podMatch(this.#options.detector) : null;
    const hasSource = match.startsWith("-s ");
    const port = dport === undefined ? {} : { dport };
    if (own !== null && !hasSource) {
      this.#redirect({ chain, match: `${own} ${match}`, reach: "cluster", ...port });
    }
    this.#redirect({ chain, match, reach: this.#reach, ...port });
  }

  #addHost(way: Way): void {
    const { listenIp, nodeIp, has: { dnat } } = this.#options;
    this.#redirect(way, listenIp ?? (dnat ? nodeIp : null));
  }

  /** Adds a rule that leads into a portal: by REDIRECT, or by DNAT to `to`. */
  #redirect({ chain, match, reach, dport = this.#port.port }: Way, to = this.#options.listenIp): void {
    const host = to?.includes(":") === true ? `[${to}]` : to;
    const target = host === null ? "-j REDIRECT --to-ports " : `-j DNAT --to-destination ${host}:`;
    this.#add("nat", chain, reach, (port) => `--dport ${dport} ${match}${target}${port}`);
  }

  #add(table: Table, chain: string, reach: PortalPolicy, rule: (port: number) => string): void {
    const { text, protocol } = this.#port;
    const name = protocol.toLowerCase();
    const head = `-m comment --comment ${quoteWord(text)} -p ${name} -m ${name} `;
    this.rules.push({ table, chain, portal: portalId(this.#port, reach), rule: (port) => head + rule(port) });
  }

  #to(ip: string): string {
    return `-d ${ip}/${this.#options.family === "IPv4" ? 32 : 128} `;
  }
}

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
