/**
 * The planner of IPVS mode: from the state of one family to the objects of the changed Services.
 *
 * @module
 */
import { cidrContains, type Ip, isLoopback, parseCidr, parseIp } from "../../../model/ip.ts";
import type { IpFamily, NamespacedName, NodeObject } from "../../../model/objects.ts";
import type {
  Changed,
  Endpoint,
  NodeFacts,
  ProxyState,
  ServicePort,
  ServicePortKey,
} from "../../../model/state.ts";
import {
  atOnce,
  type FamilySettings,
  familySettings,
  letsNodeIn,
  planServicesInSteps,
  type Steps,
} from "../../planning.ts";
import { planBaseRules } from "./base_rules.ts";
import {
  DEVICE,
  type Entry,
  type IpvsOptions,
  type IpvsPlan,
  type ServiceObjects,
  type WantedServer,
} from "./ruleset.ts";
import { categorizeEndpoints } from "../../../model/endpoint.ts";
import {
  ipPortEntry,
  ipPortIpEntry,
  ipPortNetEntry,
  portEntry,
  type SetEntry,
} from "../../../netfilter/ipset.ts";
import { virtualServerKey } from "../../../netfilter/ipvs.ts";
import { type SetKind, setName } from "./sets.ts";
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { type LocalDetection, matchingNodeIps, type NodePortAddresses } from "../../../model/node.ts";
import { compareBytes } from "../../../model/names.ts";
import type { DeviceAddress } from "../../../netfilter/ip_batch.ts";

/** Inputs that all Services of one plan share. */
export interface ServiceContext {
  readonly options: IpvsOptions;
  readonly node: NodeFacts;
  /** The node's own address; null if it has none of this family. */
  readonly nodeIp: Ip | null;
  /** Addresses of other devices: traffic to them is the node's already. */
  readonly hostIps: ReadonlySet<string>;
  readonly report: (problem: string) => void;
}

type Entries = readonly (readonly [SetKind, SetEntry])[];

/** Collects the objects of one Service. */
class ServiceDraft {
  readonly #context: ServiceContext;
  readonly #servers = new Map<string, WantedServer & { readonly entries: Entry[] }>();
  readonly #entries = new Set<Entry>();

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  get objects(): ServiceObjects {
    return { servers: [...this.#servers.values()], entries: [...this.#entries] };
  }

  addPort(servicePort: ServicePort, endpoints: readonly Endpoint[]): void {
    const { options: { nodePortIps }, node, hostIps } = this.#context;
    const { clusterIP, externalIPs, protocol, port, nodePort, externalPolicyLocal } = servicePort;
    const { cluster, local } = categorizeEndpoints(endpoints, servicePort, node);
    // One table answers pods and the world alike: without a local endpoint pods of this node still get one elsewhere.
    const reachable = (localOnly: boolean): readonly string[] =>
      (localOnly && local.length > 0 ? local : cluster).map(({ key }) => key);
    const internal = reachable(servicePort.internalPolicyLocal);
    const external = reachable(servicePort.externalPolicyLocal);
    // A pod that reaches itself has its address as source and destination, so only where pods of this node are.
    for (const { ip, port, isLocal } of endpoints) {
      if (isLocal) this.#addEntry("KUBE-LOOP-BACK", ipPortIpEntry(ip, protocol, port, ip));
    }
    const scheduler = this.#scheduler(servicePort);
    const add = (
      address: string,
      entries: Entries,
      server: Partial<Omit<WantedServer, "entries">> & { readonly port?: number } = {},
    ): void =>
      this.#addServer(servicePort, scheduler, entries, {
        ...{ address, port, realServers: external, bind: !hostIps.has(address), outFilter: "" },
        ...{ isNodePort: false, ...server },
      });
    const entryOf = (ip: string): SetEntry => ipPortEntry(ip, protocol, port);
    add(clusterIP, [["KUBE-CLUSTER-IP", entryOf(clusterIP)]], { realServers: internal, bind: true });
    const kind = externalPolicyLocal ? "KUBE-EXTERNAL-IP-LOCAL" : "KUBE-EXTERNAL-IP";
    for (const ip of externalIPs) add(ip, [[kind, entryOf(ip)]]);
    for (const { ip, entries, outFilter } of loadBalancerIps(servicePort, this.#context.nodeIp)) {
      add(ip, entries, { outFilter });
    }
    for (const ip of nodePort === 0 ? [] : nodePortIps) {
      const entry = ipPortEntry(ip, protocol, nodePort);
      const entries: [SetKind, SetEntry][] = protocol === "SCTP" ? [["KUBE-NODE-PORT-SCTP-HASH", entry]] : [];
      if (protocol === "SCTP" && externalPolicyLocal) entries.push(["KUBE-NODE-PORT-LOCAL-SCTP-HASH", entry]);
      add(ip, entries, { port: nodePort, bind: false, isNodePort: true });
    }
    this.#addNodePort(servicePort);
  }

  /** The scheduler that the Service asks for, if the kernel has it. */
  #scheduler({ ipvs: { scheduler: asked }, text }: ServicePort): string {
    const { options: { schedulers, scheduler }, report } = this.#context;
    const isMissing = asked !== "" && schedulers.length > 0 && !schedulers.includes(asked);
    if (isMissing) {
      report(
        `Service port ${text} asks for IPVS scheduler ${asked}, which this kernel does not have; ${scheduler} is used`,
      );
    }
    return asked === "" || isMissing ? scheduler : asked;
  }

  #addEntry(kind: SetKind, entry: SetEntry): void {
    this.#entries.add(this.#entry(kind, entry));
  }

  #entry(kind: SetKind, entry: SetEntry): Entry {
    return `${setName(kind, this.#context.options.family)} ${entry}`;
  }

  /** Adds a server, or only entries to a known one, as where an external IP is a load-balancer IP too. */
  #addServer(
    { protocol, stickyMaxAgeSeconds, ipvs: { graceful } }: ServicePort,
    scheduler: string,
    entries: Entries,
    { address, port, outFilter, ...rest }:
      & { readonly address: string; readonly port: number }
      & Pick<WantedServer, "realServers" | "bind" | "outFilter" | "isNodePort">,
  ): void {
    const key = virtualServerKey({ address, protocol, port });
    const texts = entries.map(([kind, entry]) => this.#entry(kind, entry));
    const known = this.#servers.get(key);
    if (known === undefined) {
      // Without this flag one client address would always get the same real server, whatever its port.
      const flags = scheduler === "mh" ? ["mh-port"] : [];
      const server = { address, protocol, port, scheduler, flags, timeoutSeconds: stickyMaxAgeSeconds };
      this.#servers.set(key, { key, server, graceful, outFilter, entries: texts, ...rest });
      return;
    }
    for (const text of texts) if (!known.entries.includes(text)) known.entries.push(text);
    if (known.outFilter === "" && outFilter !== "") this.#servers.set(key, { ...known, outFilter });
  }

  #addNodePort({ nodePort, protocol, healthCheckNodePort, externalPolicyLocal }: ServicePort): void {
    const { nodePortIps } = this.#context.options;
    if (nodePort !== 0 && nodePortIps.length === 0) return;
    if (nodePort !== 0 && protocol !== "SCTP") {
      this.#addEntry(`KUBE-NODE-PORT-${protocol}`, portEntry(nodePort));
      if (externalPolicyLocal) this.#addEntry(`KUBE-NODE-PORT-LOCAL-${protocol}`, portEntry(nodePort));
    }
    if (healthCheckNodePort !== 0) {
      this.#addEntry("KUBE-HEALTH-CHECK-NODE-PORT", portEntry(healthCheckNodePort));
    }
  }
}

/** The rule that keeps the node itself from a load-balancer IP whose ranges leave it out. */
function outFilterRule(ip: string, { protocol, port }: ServicePort): string {
  return `-s ${ip} -m ipvs --vaddr ${ip} --vproto ${protocol.toLowerCase()} --vport ${port} -j DROP`;
}

function* loadBalancerIps(
  servicePort: ServicePort,
  nodeIp: Ip | null,
): Generator<{ readonly ip: string; readonly entries: Entries; readonly outFilter: string }> {
  const { loadBalancerVIPs, loadBalancerSourceRanges, protocol, port, externalPolicyLocal } = servicePort;
  const nodeMayPass = letsNodeIn(servicePort, nodeIp);
  const guarded = loadBalancerSourceRanges.length > 0;
  for (const ip of loadBalancerVIPs) {
    const entry = ipPortEntry(ip, protocol, port);
    const entries: [SetKind, SetEntry][] = [["KUBE-LOAD-BALANCER", entry]];
    if (externalPolicyLocal) entries.push(["KUBE-LOAD-BALANCER-LOCAL", entry]);
    if (guarded) entries.push(["KUBE-LOAD-BALANCER-FW", entry]);
    for (const range of loadBalancerSourceRanges) {
      const allowed = ipPortNetEntry(ip, protocol, port, range);
      if (allowed !== null) entries.push(["KUBE-LOAD-BALANCER-SOURCE-CIDR", allowed]);
    }
    // What the node sends to one of its own addresses has that address as its source.
    if (nodeMayPass) entries.push(["KUBE-LOAD-BALANCER-SOURCE-IP", ipPortIpEntry(ip, protocol, port, ip)]);
    const outFilter = guarded && !nodeMayPass ? outFilterRule(ip, servicePort) : "";
    yield { ip, entries, outFilter };
  }
}

/** All objects of one Service, given its ports and their endpoints. */
export function objectsOfService(
  servicePorts: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  context: ServiceContext,
): ServiceObjects {
  const draft = new ServiceDraft(context);
  for (const servicePort of servicePorts) draft.addPort(servicePort, endpoints?.get(servicePort.key) ?? []);
  return draft.objects;
}

/**
 * Objects of the changed Services (all for `"all"`), and base rules. They depend on the state
 * only, not on the order in which it came about.
 *
 * @throws {RangeError} if an option does not fit its family
 */
export function planIpvs(state: ProxyState, changed: Changed, options: IpvsOptions): IpvsPlan {
  return atOnce(planIpvsInSteps(state, changed, options));
}

/** As {@linkcode planIpvs}, with a step after each Service. */
export function* planIpvsInSteps(state: ProxyState, changed: Changed, options: IpvsOptions): Steps<IpvsPlan> {
  const { family } = options;
  for (const text of [...options.nodePortIps, ...options.hostIps]) {
    if (parseIp(text)?.family !== family) {
      throw new RangeError(`Node-port and host addresses must be ${family} addresses: got "${text}"`);
    }
  }
  const nodeIp = parseIp(options.nodeIp);
  const problems = new Map<NamespacedName, readonly string[]>();
  let reported = new Set<string>();
  const context: ServiceContext = {
    options,
    node: state.node,
    nodeIp: nodeIp?.family === family ? nodeIp : null,
    hostIps: new Set(options.hostIps),
    report: (problem) => reported.add(problem),
  };
  const services = yield* planServicesInSteps(
    state,
    changed,
    family,
    (ports, endpoints, name) => {
      reported = new Set();
      const objects = objectsOfService(ports, endpoints, context);
      if (reported.size > 0) problems.set(name, [...reported].sort());
      return objects;
    },
  );
  return {
    all: changed === "all",
    base: planBaseRules(options),
    services,
    problems,
  };
}

const DEFAULT_SCHEDULER = "rr";

/** All of the options that neither the kernel nor the node's devices decide. */
export type ConfiguredIpvs = FamilySettings & Pick<IpvsOptions, "scheduler" | "excludeCIDRs">;

/**
 * The options of one family; `problem` says why local traffic may not be recognised.
 *
 * @param node null if it is not known
 * @throws {SyntaxError} if one of the networks is no CIDR
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
 * The node's own addresses that get a virtual server for every node port, sorted. Bridges and addresses of the
 * pod network are among them if all addresses are asked for.
 */
export function nodePortIps(addresses: NodePortAddresses, ownIps: readonly string[]): readonly string[] {
  return addresses.matchAll ? ownIps : matchingNodeIps(addresses, ownIps);
}
