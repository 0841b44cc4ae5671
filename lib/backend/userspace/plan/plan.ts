/**
 * The planner of userspace mode: which ports of kproxy's own there must be, and which packets are led to them.
 *
 * @module
 */
import { categorizeEndpoints } from "../../../model/endpoint.ts";
import { isExternallyAccessible } from "../../../model/service_port.ts";
import type { LocalDetector } from "../../../model/node.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Changed, Endpoint, ProxyState, ServicePort, ServicePortKey } from "../../../model/state.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import { quoteWord } from "../../../netfilter/words.ts";
import { atOnce, planServicesInSteps, type Steps } from "../../plan_services.ts";
import {
  NODE_PORTS_CONTAINER,
  NODE_PORTS_HOST,
  NODE_PORTS_INPUT,
  PORTALS_CONTAINER,
  PORTALS_FIREWALL,
  PORTALS_HOST,
} from "./chains.ts";
import type {
  Doorway,
  Portal,
  PortalId,
  PortalPolicy,
  PortalProtocol,
  ServicePortals,
  UserspacePlan,
} from "./ruleset.ts";

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
  /** What the node's iptables has. */
  readonly has: IptablesAbilities;
}

/** What the rules of this mode can do without. */
export interface IptablesAbilities {
  /** Target DNAT; without it the node's own packets are redirected, which leads them to a loopback address. */
  readonly dnat: boolean;
  /** Match physdev, which spares packets of pods on a bridge. */
  readonly physdev: boolean;
  /** Match conntrack and target REJECT; without them the portals take what comes to them directly, too. */
  readonly firewall: boolean;
}

/**
 * What the changed Services want (all of them for `"all"`). It depends on the state only.
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
  if (state.family !== options.family) {
    throw new RangeError(
      `State and options must be of one family: got ${state.family} and ${options.family}`,
    );
  }
  const names = changed === "all" ? state.services.keys() : changed;
  return yield* planServicesInSteps(
    state,
    [...names].sort(),
    (ports, endpoints) => planService(ports, endpoints, state, options),
  );
}

/** The id of a portal. */
function portalId({ key }: ServicePort, reach: PortalPolicy): PortalId {
  return reach === "cluster" ? key : `${key} local`;
}

function planService(
  ports: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  { node }: ProxyState,
  options: UserspaceOptions,
): ServicePortals {
  const draft = new ServiceDraft(options);
  for (const port of ports) {
    if (port.protocol === "SCTP") {
      draft.unserved.push({ text: port.text, reason: "mode userspace cannot forward SCTP" });
      continue;
    }
    const found = categorizeEndpoints(endpoints?.get(port.key) ?? [], port, node);
    draft.add(port, { cluster: found.cluster, local: found.local });
  }
  return draft;
}

/** One Service in the making. */
class ServiceDraft implements ServicePortals {
  readonly portals: Portal[] = [];
  readonly doorways: Doorway[] = [];
  readonly unserved: { readonly text: string; readonly reason: string }[] = [];
  readonly #options: UserspaceOptions;

  constructor(options: UserspaceOptions) {
    this.#options = options;
  }

  /** A ServicePort: its portals, then the ways to them. */
  add(port: ServicePort, endpoints: Readonly<Record<PortalPolicy, readonly Endpoint[]>>): void {
    const internal: PortalPolicy = port.internalPolicyLocal ? "local" : "cluster";
    const isExternal = isExternallyAccessible(port);
    const external: PortalPolicy = port.externalPolicyLocal ? "local" : "cluster";
    // What the node and its pods send to external addresses goes where policy Cluster leads it.
    const reaches = new Set<PortalPolicy>(isExternal ? [internal, external, "cluster"] : [internal]);
    for (const reach of reaches) {
      this.portals.push({
        id: portalId(port, reach),
        text: port.text,
        protocol: port.protocol as PortalProtocol,
        policy: reach,
        endpoints: endpoints[reach].map(({ ip, port }) => ({ ip, port })),
        stickyMaxAgeSeconds: port.stickyMaxAgeSeconds,
      });
      this.#addFirewall(port, reach);
    }
    this.#addAddress(port, port.clusterIP, internal);
    if (!isExternal) return;
    for (const ip of port.externalIPs) this.#addExternalIp(port, ip, external);
    for (const ip of port.loadBalancerVIPs) this.#addLoadBalancerIp(port, ip, external);
    if (port.nodePort !== 0) this.#addNodePort(port, external);
  }

  /** Whatever the Service's type is, nobody reaches its portals by their ports. */
  #addFirewall(port: ServicePort, reach: PortalPolicy): void {
    const { has, listenIp } = this.#options;
    if (!has.firewall) return;
    this.doorways.push({
      table: "filter",
      chain: PORTALS_FIREWALL,
      before: `${this.#head(port)} ${listenIp === null ? "" : this.#to(listenIp)}--dport `,
      after: " -j REJECT",
      portal: portalId(port, reach),
    });
  }

  #addAddress(port: ServicePort, ip: string, reach: PortalPolicy): void {
    this.#add(port, "nat", PORTALS_CONTAINER, { match: this.#to(ip), reach });
    this.#addHost(port, PORTALS_HOST, this.#to(ip), reach);
  }

  #addExternalIp(port: ServicePort, ip: string, reach: PortalPolicy): void {
    const { has: { physdev } } = this.#options;
    const local = `${this.#to(ip)}-m addrtype --dst-type LOCAL `;
    const far = physdev ? [`${this.#to(ip)}-m physdev ! --physdev-is-in `] : [this.#to(ip)];
    for (const match of [...far, ...(physdev ? [local] : [])]) this.#addContainer(port, match, reach);
    this.#addHost(port, PORTALS_HOST, local, "cluster");
  }

  /** Who is not among the sources is led nowhere. */
  #addLoadBalancerIp(port: ServicePort, ip: string, reach: PortalPolicy): void {
    const ranges = port.loadBalancerSourceRanges;
    const sources = ranges.length === 0 ? [""] : ranges.map((range) => `-s ${range} `);
    for (const source of sources) this.#addContainer(port, source + this.#to(ip), reach);
    // The node itself reaches its load balancers, whatever their sources are.
    this.#addHost(port, PORTALS_HOST, this.#to(ip), "cluster");
  }

  #addNodePort(port: ServicePort, reach: PortalPolicy): void {
    const { nodePortIps } = this.#options;
    const matches = nodePortIps === null ? [""] : nodePortIps.map((ip) => this.#to(ip));
    for (const match of matches) {
      this.#addContainer(port, match, reach, { chain: NODE_PORTS_CONTAINER, dport: port.nodePort });
      this.#addHost(port, NODE_PORTS_HOST, match, "cluster", port.nodePort);
    }
    if (matches.length === 0) return;
    for (const one of new Set<PortalPolicy>([reach, "cluster"])) {
      this.doorways.push({
        table: "filter",
        chain: NODE_PORTS_INPUT,
        before: `${this.#head(port)} --dport `,
        after: " -m state --state NEW -j ACCEPT",
        portal: portalId(port, one),
      });
    }
  }

  /** Packets of others; where policy Local applies, those of pods of this node come first. */
  #addContainer(
    port: ServicePort,
    match: string,
    reach: PortalPolicy,
    { chain, dport }: { chain: string; dport: number } = { chain: PORTALS_CONTAINER, dport: port.port },
  ): void {
    const own = reach === "local" ? this.#fromPods() : null;
    const hasSource = match.startsWith("-s ");
    if (own !== null && !hasSource) {
      this.#add(port, "nat", chain, { match: own + match, reach: "cluster", dport });
    }
    this.#add(port, "nat", chain, { match, reach, dport });
  }

  #addHost(port: ServicePort, chain: string, match: string, reach: PortalPolicy, dport = port.port): void {
    const { listenIp, nodeIp, has: { dnat } } = this.#options;
    const to = listenIp ?? (dnat ? nodeIp : null);
    this.#add(port, "nat", chain, { match, reach, dport, to });
  }

  /** A way into a portal: by a redirection, or to `to`. */
  #add(
    port: ServicePort,
    table: Table,
    chain: string,
    { match, reach, dport = port.port, to = this.#options.listenIp }: {
      readonly match: string;
      readonly reach: PortalPolicy;
      readonly dport?: number;
      readonly to?: string | null;
    },
  ): void {
    const host = to === null ? null : to.includes(":") ? `[${to}]` : to;
    const target = host === null ? "-j REDIRECT --to-ports " : `-j DNAT --to-destination ${host}:`;
    this.doorways.push({
      table,
      chain,
      before: `${this.#head(port)} --dport ${dport} ${match}${target}`,
      after: "",
      portal: portalId(port, reach),
    });
  }

  #head({ text, protocol }: ServicePort): string {
    const name = protocol.toLowerCase();
    return `-m comment --comment ${quoteWord(text)} -p ${name} -m ${name}`;
  }

  #to(ip: string): string {
    return `-d ${ip}/${this.#options.family === "IPv4" ? 32 : 128} `;
  }

  #fromPods(): string | null {
    const { detector } = this.#options;
    switch (detector.kind) {
      case "none":
        return null;
      case "cidr":
        return `-s ${detector.cidr} `;
      case "interface":
        return `-i ${detector.name} `;
      case "interfacePrefix":
        return `-i ${detector.prefix}+ `;
    }
  }
}
