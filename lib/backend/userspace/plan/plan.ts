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
  Portal,
  PortalId,
  PortalPolicy,
  PortalProtocol,
  PortalRule,
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

/** What is said of a port that no process can forward. */
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
  const draft = new ServiceDraft(options);
  for (const port of ports) {
    if (port.protocol === "SCTP") draft.unserved.push(unservedText(port));
    else draft.add(port, categorizeEndpoints(endpoints?.get(port.key) ?? [], port, node));
  }
  return draft;
}

/** Where packets of a port come from, and where they are led. */
interface Way {
  readonly chain: string;
  /** What a packet must be besides, with a blank at its end. */
  readonly match: string;
  readonly reach: PortalPolicy;
  /** Default: the port of the Service. */
  readonly dport?: number;
}

/** One Service in the making. */
class ServiceDraft implements ServicePortals {
  readonly portals: Portal[] = [];
  readonly rules: PortalRule[] = [];
  readonly unserved: string[] = [];
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
      this.portals.push(portalOf(port, reach, endpoints[reach]));
      this.#addFirewall(port, reach);
    }
    const match = this.#to(port.clusterIP);
    this.#redirect(port, { chain: PORTALS_CONTAINER, match, reach: internal });
    this.#addHost(port, { chain: PORTALS_HOST, match, reach: internal });
    if (!isExternal) return;
    for (const ip of port.externalIPs) this.#addExternalIp(port, ip, external);
    for (const ip of port.loadBalancerVIPs) this.#addLoadBalancerIp(port, ip, external);
    if (port.nodePort !== 0) this.#addNodePort(port, external);
  }

  /** Whatever the Service's type is, nobody reaches its portals by their ports. */
  #addFirewall(port: ServicePort, reach: PortalPolicy): void {
    const { has, listenIp } = this.#options;
    const to = listenIp === null ? "" : this.#to(listenIp);
    if (has.firewall) this.#addFilter(port, PORTALS_FIREWALL, reach, [`${to}--dport `, " -j REJECT"]);
  }

  #addExternalIp(port: ServicePort, ip: string, reach: PortalPolicy): void {
    const { has: { physdev } } = this.#options;
    const local = `${this.#to(ip)}-m addrtype --dst-type LOCAL `;
    const far = physdev ? [`${this.#to(ip)}-m physdev ! --physdev-is-in `] : [this.#to(ip)];
    for (const match of [...far, ...(physdev ? [local] : [])]) {
      this.#addContainer(port, { chain: PORTALS_CONTAINER, match, reach });
    }
    this.#addHost(port, { chain: PORTALS_HOST, match: local, reach: "cluster" });
  }

  /** Who is not among the sources is led nowhere. */
  #addLoadBalancerIp(port: ServicePort, ip: string, reach: PortalPolicy): void {
    const ranges = port.loadBalancerSourceRanges;
    const sources = ranges.length === 0 ? [""] : ranges.map((range) => `-s ${range} `);
    for (const source of sources) {
      this.#addContainer(port, { chain: PORTALS_CONTAINER, match: source + this.#to(ip), reach });
    }
    // The node itself reaches its load balancers, whatever their sources are.
    this.#addHost(port, { chain: PORTALS_HOST, match: this.#to(ip), reach: "cluster" });
  }

  #addNodePort(port: ServicePort, reach: PortalPolicy): void {
    const { nodePortIps } = this.#options;
    const matches = nodePortIps === null ? [""] : nodePortIps.map((ip) => this.#to(ip));
    for (const match of matches) {
      const dport = port.nodePort;
      this.#addContainer(port, { chain: NODE_PORTS_CONTAINER, match, reach, dport });
      this.#addHost(port, { chain: NODE_PORTS_HOST, match, reach: "cluster", dport });
    }
    for (const one of matches.length === 0 ? [] : new Set<PortalPolicy>([reach, "cluster"])) {
      this.#addFilter(port, NODE_PORTS_INPUT, one, ["--dport ", " -m state --state NEW -j ACCEPT"]);
    }
  }

  /** Packets of others; where policy Local applies, those of pods of this node come first. */
  #addContainer(port: ServicePort, way: Way): void {
    const own = way.reach === "local" ? fromPods(this.#options.detector) : null;
    const hasSource = way.match.startsWith("-s ");
    if (own !== null && !hasSource) {
      this.#redirect(port, { ...way, match: own + way.match, reach: "cluster" });
    }
    this.#redirect(port, way);
  }

  #addHost(port: ServicePort, way: Way): void {
    const { listenIp, nodeIp, has: { dnat } } = this.#options;
    this.#redirect(port, way, listenIp ?? (dnat ? nodeIp : null));
  }

  /** A way into a portal: by a redirection, or to `to`. */
  #redirect(
    port: ServicePort,
    { chain, match, reach, dport = port.port }: Way,
    to = this.#options.listenIp,
  ): void {
    const host = to?.includes(":") === true ? `[${to}]` : to;
    const target = host === null ? "-j REDIRECT --to-ports " : `-j DNAT --to-destination ${host}:`;
    const text = `${head(port)} --dport ${dport} ${match}${target}`;
    this.rules.push({ table: "nat", chain, portal: portalId(port, reach), rule: (to) => `${text}${to}` });
  }

  /** @param around the portal's port */
  #addFilter(
    port: ServicePort,
    chain: string,
    reach: PortalPolicy,
    [before, after]: readonly [before: string, after: string],
  ): void {
    const text = `${head(port)} ${before}`;
    const rule = (dport: number): string => text + dport + after;
    this.rules.push({ table: "filter", chain, portal: portalId(port, reach), rule });
  }

  #to(ip: string): string {
    return `-d ${ip}/${this.#options.family === "IPv4" ? 32 : 128} `;
  }
}

function head({ text, protocol }: ServicePort): string {
  const name = protocol.toLowerCase();
  return `-m comment --comment ${quoteWord(text)} -p ${name} -m ${name}`;
}

function fromPods(detector: LocalDetector): string | null {
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
