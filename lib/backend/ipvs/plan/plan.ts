/**
 * The planner of IPVS mode: from the state of one family to what the changed Services want.
 *
 * @module
 */
import { type Ip, parseIp } from "../../../model/ip.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type {
  Changed,
  Endpoint,
  NodeFacts,
  ProxyState,
  ServicePort,
  ServicePortKey,
} from "../../../model/state.ts";
import { atOnce, letsNodeIn, planServicesInSteps, type Steps } from "../../plan_services.ts";
import { planBaseRules } from "./base_rules.ts";
import type { Entry, IpvsOptions, IpvsPlan, ServiceObjects, WantedServer } from "./ruleset.ts";
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

/** What all Services of one plan share. */
export interface ServiceContext {
  readonly options: IpvsOptions;
  readonly node: NodeFacts;
  /** The node's own address; null if it has none of this family. */
  readonly nodeIp: Ip | null;
  /** Addresses of other devices: traffic to them is the node's already. */
  readonly hostIps: ReadonlySet<string>;
  readonly report: (problem: string) => void;
}

/** What one address of a Service wants. */
interface WantedAddress {
  readonly address: string;
  readonly port: number;
  readonly realServers: readonly string[];
  readonly entries: readonly (readonly [SetKind, SetEntry])[];
  /** True unless another device has it. */
  readonly bind: boolean;
  readonly outFilter?: string;
  readonly isNodePort?: boolean;
}

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
    const { options: { nodePortIps, schedulers, scheduler }, node, report } = this.#context;
    const { ipvs: { scheduler: asked }, text, nodePort, healthCheckNodePort } = servicePort;
    const isMissing = asked !== "" && schedulers.length > 0 && !schedulers.includes(asked);
    if (isMissing) {
      report(
        `Service port ${text} asks for IPVS scheduler ${asked}, which this kernel does not have; ${scheduler} is used`,
      );
    }
    const { cluster, local } = categorizeEndpoints(endpoints, servicePort, node);
    // One table answers pods and the world alike: without a local endpoint pods of this node still get one elsewhere.
    const reachable = (localOnly: boolean): readonly string[] =>
      (localOnly && local.length > 0 ? local : cluster).map(({ key }) => key);
    const internal = reachable(servicePort.internalPolicyLocal);
    const external = reachable(servicePort.externalPolicyLocal);
    // A pod that reaches itself has its address as source and destination, so only where pods of this node are.
    for (const { ip, port, isLocal } of endpoints) {
      if (isLocal) this.#addEntry("KUBE-LOOP-BACK", ipPortIpEntry(ip, servicePort.protocol, port, ip));
    }
    for (const wanted of this.#addresses(servicePort, internal, external)) {
      this.#addServer(servicePort, asked === "" || isMissing ? scheduler : asked, wanted);
    }
    if (nodePort !== 0 && nodePortIps.length === 0) return;
    if (nodePort !== 0 && servicePort.protocol !== "SCTP") {
      this.#addNodePort(servicePort, servicePort.protocol);
    }
    if (healthCheckNodePort !== 0) {
      this.#addEntry("KUBE-HEALTH-CHECK-NODE-PORT", portEntry(healthCheckNodePort));
    }
  }

  #addEntry(kind: SetKind, entry: SetEntry): void {
    this.#entries.add(this.#entry(kind, entry));
  }

  #entry(kind: SetKind, entry: SetEntry): Entry {
    return `${setName(kind, this.#context.options.family)} ${entry}`;
  }

  /** The same server once more, as where an external IP is a load-balancer IP too, adds entries. */
  #addServer(
    { protocol, stickyMaxAgeSeconds, ipvs: { graceful } }: ServicePort,
    scheduler: string,
    { address, port, entries, outFilter = "", isNodePort = false, ...rest }: WantedAddress,
  ): void {
    const key = virtualServerKey({ address, protocol, port });
    const texts = entries.map(([kind, entry]) => this.#entry(kind, entry));
    const known = this.#servers.get(key);
    if (known === undefined) {
      // Without it one client address would always get the same real server, whatever its port.
      const flags = scheduler === "mh" ? ["mh-port"] : [];
      const server = { address, protocol, port, scheduler, flags, timeoutSeconds: stickyMaxAgeSeconds };
      this.#servers.set(key, { key, server, graceful, outFilter, isNodePort, entries: texts, ...rest });
      return;
    }
    for (const text of texts) if (!known.entries.includes(text)) known.entries.push(text);
    if (known.outFilter === "" && outFilter !== "") this.#servers.set(key, { ...known, outFilter });
  }

  *#addresses(
    servicePort: ServicePort,
    internal: readonly string[],
    external: readonly string[],
  ): Generator<WantedAddress> {
    const { options: { nodePortIps }, hostIps } = this.#context;
    const { clusterIP, externalIPs, protocol, port, nodePort, externalPolicyLocal } = servicePort;
    const entryOf = (ip: string): SetEntry => ipPortEntry(ip, protocol, port);
    yield {
      address: clusterIP,
      port,
      realServers: internal,
      bind: true,
      entries: [["KUBE-CLUSTER-IP", entryOf(clusterIP)]],
    };
    const kind = externalPolicyLocal ? "KUBE-EXTERNAL-IP-LOCAL" : "KUBE-EXTERNAL-IP";
    for (const ip of externalIPs) {
      const entries = [[kind, entryOf(ip)]] as const;
      yield { address: ip, port, realServers: external, bind: !hostIps.has(ip), entries };
    }
    for (const one of loadBalancerIps(servicePort, this.#context.nodeIp)) {
      yield { ...one, port, realServers: external, bind: !hostIps.has(one.address) };
    }
    for (const ip of nodePort === 0 ? [] : nodePortIps) {
      const entry = ipPortEntry(ip, protocol, nodePort);
      const entries: [SetKind, SetEntry][] = protocol === "SCTP" ? [["KUBE-NODE-PORT-SCTP-HASH", entry]] : [];
      if (protocol === "SCTP" && externalPolicyLocal) entries.push(["KUBE-NODE-PORT-LOCAL-SCTP-HASH", entry]);
      yield { address: ip, port: nodePort, realServers: external, bind: false, entries, isNodePort: true };
    }
  }

  #addNodePort({ nodePort, externalPolicyLocal }: ServicePort, protocol: "TCP" | "UDP"): void {
    this.#addEntry(`KUBE-NODE-PORT-${protocol}`, portEntry(nodePort));
    if (externalPolicyLocal) this.#addEntry(`KUBE-NODE-PORT-LOCAL-${protocol}`, portEntry(nodePort));
  }
}

/** The rule that keeps the node itself from a load-balancer IP whose ranges leave it out. */
function outFilterRule(ip: string, { protocol, port }: ServicePort): string {
  return `-s ${ip} -m ipvs --vaddr ${ip} --vproto ${protocol.toLowerCase()} --vport ${port} -j DROP`;
}

function* loadBalancerIps(
  servicePort: ServicePort,
  nodeIp: Ip | null,
): Generator<Pick<WantedAddress, "address" | "entries" | "outFilter">> {
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
    yield { address: ip, entries, outFilter };
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
 * What the changed Services want (all for `"all"`) and the rules that are always there. It depends on the state
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
