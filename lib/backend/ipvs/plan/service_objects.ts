/**
 * What one Service wants of IPVS and the sets: its virtual servers with their real ones, and the entries that say how
 * traffic to them is treated (rule 14 of `../README.md` among them).
 *
 * @module
 */
import { categorizeEndpoints } from "../../../model/endpoint.ts";
import { cidrContains, type Ip, parseCidr } from "../../../model/ip.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Endpoint, NodeFacts, ServicePort, ServicePortKey } from "../../../model/state.ts";
import {
  ipPortEntry,
  ipPortIpEntry,
  ipPortNetEntry,
  portEntry,
  type SetEntry,
} from "../../../netfilter/ipset.ts";
import { type VirtualServer, virtualServerKey } from "../../../netfilter/ipvs.ts";
import type { Entry, ServiceObjects, WantedServer } from "./ruleset.ts";
import { type SetKind, setName } from "./sets.ts";

/** What all Services of one plan share. */
export interface ServiceContext {
  readonly family: IpFamily;
  readonly node: NodeFacts;
  /** The node's own address; null if it has none of this family. */
  readonly nodeIp: Ip | null;
  readonly nodePortIps: readonly string[];
  /** Addresses of other devices: traffic to them is the node's already. */
  readonly hostIps: ReadonlySet<string>;
  readonly scheduler: string;
  /** False if the kernel cannot do it. */
  readonly hasScheduler: (scheduler: string) => boolean;
  readonly report: (problem: string) => void;
}

/** Collects the objects of one Service. */
class ServiceDraft {
  readonly #context: ServiceContext;
  readonly #servers = new Map<string, WantedServer & { readonly entries: Entry[] }>();
  readonly #entries = new Set<Entry>();

  constructor(context: ServiceContext) {
    this.#context = context;
  }

  addEntry(kind: SetKind, entry: SetEntry): void {
    this.#entries.add(this.#entry(kind, entry));
  }

  /** The same server once more, as where an external IP is a load-balancer IP too, adds entries. */
  addServer(wanted: Omit<WantedServer, "entries">, entries: readonly (readonly [SetKind, SetEntry])[]): void {
    const texts = entries.map(([kind, entry]) => this.#entry(kind, entry));
    const known = this.#servers.get(wanted.key);
    if (known === undefined) {
      this.#servers.set(wanted.key, { ...wanted, entries: texts });
      return;
    }
    for (const text of texts) if (!known.entries.includes(text)) known.entries.push(text);
    if (known.outFilter === "" && wanted.outFilter !== "") {
      this.#servers.set(wanted.key, { ...known, outFilter: wanted.outFilter });
    }
  }

  finish(): ServiceObjects {
    return { servers: [...this.#servers.values()], entries: [...this.#entries] };
  }

  #entry(kind: SetKind, entry: SetEntry): Entry {
    return `${setName(kind, this.#context.family)} ${entry}`;
  }
}

/** What the objects of one ServicePort are made from. */
interface PortFacts {
  readonly servicePort: ServicePort;
  /** Keys of those that answer on the cluster IP. */
  readonly internal: readonly string[];
  /** Keys of those that answer on everything else. */
  readonly external: readonly string[];
  readonly scheduler: string;
}

function portFacts(
  servicePort: ServicePort,
  endpoints: readonly Endpoint[],
  context: ServiceContext,
): PortFacts {
  const { cluster, local } = categorizeEndpoints(endpoints, servicePort, context.node);
  // One table answers pods and the world alike: without a local endpoint pods of this node still get one elsewhere.
  const reachable = (localOnly: boolean): readonly string[] =>
    (localOnly && local.length > 0 ? local : cluster).map(({ key }) => key);
  const asked = servicePort.ipvs.scheduler;
  const granted = asked === "" || context.hasScheduler(asked);
  if (!granted) {
    context.report(
      `Service port ${servicePort.text} asks for IPVS scheduler ${asked}, which this kernel does not have; ` +
        `${context.scheduler} is used`,
    );
  }
  return {
    servicePort,
    internal: reachable(servicePort.internalPolicyLocal),
    external: reachable(servicePort.externalPolicyLocal),
    scheduler: asked === "" || !granted ? context.scheduler : asked,
  };
}

function wantedServer(
  facts: PortFacts,
  address: string,
  port: number,
  rest: Pick<WantedServer, "realServers" | "bind" | "outFilter"> & { readonly isNodePort?: boolean },
): Omit<WantedServer, "entries"> {
  const { protocol, stickyMaxAgeSeconds, ipvs } = facts.servicePort;
  const { scheduler } = facts;
  const server: VirtualServer = {
    address,
    protocol,
    port,
    scheduler,
    // Without it one client address would always get the same real server, whatever its port.
    flags: scheduler === "mh" ? ["mh-port"] : [],
    timeoutSeconds: stickyMaxAgeSeconds,
  };
  return { key: virtualServerKey(server), server, graceful: ipvs.graceful, isNodePort: false, ...rest };
}

function addClusterIp(facts: PortFacts, draft: ServiceDraft): void {
  const { clusterIP, protocol, port } = facts.servicePort;
  draft.addServer(
    wantedServer(facts, clusterIP, port, { realServers: facts.internal, bind: true, outFilter: "" }),
    [["KUBE-CLUSTER-IP", ipPortEntry(clusterIP, protocol, port)]],
  );
}

function addExternalIps(facts: PortFacts, context: ServiceContext, draft: ServiceDraft): void {
  const { protocol, port, externalPolicyLocal } = facts.servicePort;
  const kind = externalPolicyLocal ? "KUBE-EXTERNAL-IP-LOCAL" : "KUBE-EXTERNAL-IP";
  for (const ip of facts.servicePort.externalIPs) {
    const bind = !context.hostIps.has(ip);
    draft.addServer(wantedServer(facts, ip, port, { realServers: facts.external, bind, outFilter: "" }), [
      [kind, ipPortEntry(ip, protocol, port)],
    ]);
  }
}

/** True if one of the source ranges lets the node itself in. */
function containsNode(servicePort: ServicePort, nodeIp: Ip | null): boolean {
  return servicePort.loadBalancerSourceRanges.some((range) => {
    const cidr = parseCidr(range);
    if (cidr === null) {
      throw new RangeError(
        `Source range of Service port "${servicePort.text}" must be a CIDR: got "${range}"`,
      );
    }
    return nodeIp !== null && cidrContains(cidr, nodeIp);
  });
}

/** The rule that keeps the node itself from a load-balancer IP whose ranges leave it out. */
function outFilterRule(ip: string, { protocol, port }: ServicePort): string {
  return `-s ${ip} -m ipvs --vaddr ${ip} --vproto ${protocol.toLowerCase()} --vport ${port} -j DROP`;
}

function addLoadBalancerIps(facts: PortFacts, context: ServiceContext, draft: ServiceDraft): void {
  const { servicePort } = facts;
  const { loadBalancerVIPs, loadBalancerSourceRanges, protocol, port, externalPolicyLocal } = servicePort;
  const nodeMayPass = containsNode(servicePort, context.nodeIp);
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
    const bind = !context.hostIps.has(ip);
    draft.addServer(wantedServer(facts, ip, port, { realServers: facts.external, bind, outFilter }), entries);
  }
}

function addNodePort(facts: PortFacts, context: ServiceContext, draft: ServiceDraft): void {
  const { nodePort, protocol, externalPolicyLocal } = facts.servicePort;
  for (const ip of context.nodePortIps) {
    const entries: [SetKind, SetEntry][] = [];
    if (protocol === "SCTP") {
      const entry = ipPortEntry(ip, protocol, nodePort);
      entries.push(["KUBE-NODE-PORT-SCTP-HASH", entry]);
      if (externalPolicyLocal) entries.push(["KUBE-NODE-PORT-LOCAL-SCTP-HASH", entry]);
    }
    const rest = { realServers: facts.external, bind: false, outFilter: "", isNodePort: true };
    draft.addServer(wantedServer(facts, ip, nodePort, rest), entries);
  }
  if (protocol === "SCTP") return;
  draft.addEntry(`KUBE-NODE-PORT-${protocol}`, portEntry(nodePort));
  if (externalPolicyLocal) draft.addEntry(`KUBE-NODE-PORT-LOCAL-${protocol}`, portEntry(nodePort));
}

/** All objects of one Service, given its ports and their endpoints. */
export function objectsOfService(
  servicePorts: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  context: ServiceContext,
): ServiceObjects {
  const draft = new ServiceDraft(context);
  for (const servicePort of servicePorts) {
    const ofPort = endpoints?.get(servicePort.key) ?? [];
    const facts = portFacts(servicePort, ofPort, context);
    // A pod that reaches itself: told by its address as source and destination, so only where pods of this node are.
    for (const { ip, port, isLocal } of ofPort) {
      if (isLocal) draft.addEntry("KUBE-LOOP-BACK", ipPortIpEntry(ip, servicePort.protocol, port, ip));
    }
    addClusterIp(facts, draft);
    addExternalIps(facts, context, draft);
    addLoadBalancerIps(facts, context, draft);
    if (servicePort.nodePort !== 0) {
      if (context.nodePortIps.length === 0) continue;
      addNodePort(facts, context, draft);
    }
    if (servicePort.healthCheckNodePort !== 0) {
      draft.addEntry("KUBE-HEALTH-CHECK-NODE-PORT", portEntry(servicePort.healthCheckNodePort));
    }
  }
  return draft.finish();
}
