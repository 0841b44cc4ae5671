/**
 * The way of one packet through desired and live rules, with the Service it is for and what keeps its endpoints from being used.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { type EndpointUses, endpointUses } from "../../model/endpoint_reasons.ts";
import { cidrContains, parseCidr, parseIp } from "../../model/ip.ts";
import type { IpFamily, NamespacedName, Service } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import { type Flow, type Packet, serviceProtocol } from "../../sim/flow.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import { type HostState, isNodeAddress } from "../../sim/packet_walk.ts";
import { few } from "../../text/words.ts";
import {
  type DesiredState,
  knownNodeAddresses,
  nodeNameFinding,
  podInterface,
  stateOf,
} from "../desired/desired.ts";
import { UNKNOWN_HOST } from "../live/host_network.ts";
import type { FoundProxy, LiveProblem, LiveRules } from "../live/live.ts";
import { type DestinationKind, endpointLack, findService, unplacedNotes } from "../service/service_match.ts";
import { differenceOf, foreignFindings, type TraceDifference } from "./compare.ts";
import { packetOf, readSource, type TracedDestination, WORLD } from "./packet.ts";

export interface TraceSide {
  /** Where the rules are from: `files a.yaml`, `the kernel`. */
  readonly from: string;
  /** E.g. `iptables`; of live rules all that were found. */
  readonly modes: readonly string[];
  readonly flow: Flow;
}

/** The ServicePort that a packet is for. */
export interface TracedService {
  readonly port: ServicePort;
  readonly kind: DestinationKind;
  /** Whose endpoints such a packet may get. */
  readonly policy: "cluster" | "local";
  readonly uses: EndpointUses;
}

export interface Trace {
  readonly family: IpFamily;
  readonly packet: Packet;
  readonly service: TracedService | null;
  readonly desired: TraceSide | null;
  readonly live: TraceSide | null;
  /** Null: they agree, or there is one side only. */
  readonly difference: TraceDifference | null;
  /** What is wrong on the node, one sentence each. */
  readonly findings: readonly string[];
  /** Live rules on the packet's way that the simulator does not understand: what they do with it is not in the walk. */
  readonly unsure: readonly string[];
  readonly notes: readonly string[];
  readonly problems: readonly LiveProblem[];
}

export interface TraceInput {
  readonly family: IpFamily;
  readonly packet: Packet;
  readonly hostState: HostState;
  /** Null: no objects were asked for. */
  readonly desired: {
    readonly from: string;
    readonly mode: string;
    readonly state: DesiredState;
    readonly rules: RulesetSnapshot;
    readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  } | null;
  /** Null: what is there is not looked at. */
  readonly live: LiveRules | null;
  /** What is wrong with the machine for every packet, one sentence each. */
  readonly findings: readonly string[];
  readonly notes: readonly string[];
  /** What is not known of its way beside its rules. */
  readonly unsure?: readonly string[];
}

/** Desired rules are walked on a sound node: nothing but rules stops a packet there. */
function healthy(hostState: HostState): HostState {
  const { nodeAddresses, affinity, nowSeconds, isBridged, addressOf } = hostState;
  return {
    nodeAddresses,
    affinity,
    nowSeconds,
    ...(isBridged === undefined ? {} : { isBridged }),
    ...(addressOf === undefined ? {} : { addressOf }),
  };
}

export function tracePacket(input: TraceInput): Trace {
  const { family, packet, desired, live, hostState } = input;
  const notes = [...input.notes];
  const wanted: TraceSide | null = desired === null ? null : {
    from: desired.from,
    modes: [desired.mode],
    flow: new RulesetSimulator(desired.rules).send(packet, healthy(hostState)),
  };
  const found: TraceSide | null = live === null ? null : {
    from: live.from,
    modes: [...new Set(live.proxies.map(({ mode }) => mode))],
    flow: new RulesetSimulator(live).send(packet, hostState),
  };
  const difference = wanted === null || found === null ? null : differenceOf(wanted.flow, found.flow, family);
  const service = desired === null ? null : serviceOf(input, desired.state, wanted?.flow ?? null, notes);
  const caught = live === null ? [] : liveFindings(live, found?.flow ?? null, packet);
  const findings = [
    ...input.findings,
    ...(desired === null ? [] : nodeNameFinding(desired.state, hostState.nodeAddresses)),
    ...caught,
    // A rule of another program that catches the packet first is a finding of its own.
    ...(difference === null || difference.isForeign && caught.length > 0
      ? []
      : ["The live rules do something else than the desired ones: kproxy check names them"]),
    ...(desired === null || live === null ? [] : modeFinding(desired.mode, live)),
    ...quarantineFinding(desired?.quarantined ?? null, service),
  ];
  for (const problem of wanted?.flow.problems ?? []) notes.push(`${wanted?.from}: ${problem}`);
  return {
    family,
    packet,
    service,
    desired: wanted,
    live: found,
    difference,
    findings,
    unsure: [...found?.flow.problems ?? [], ...input.unsure ?? []],
    notes,
    problems: live?.problems ?? [],
  };
}

/** Walks a packet through rules that are wanted, on a node of which only addresses are known. */
export function traceWanted(
  from: string,
  destination: TracedDestination,
  { config, addresses, desired }: {
    readonly config: KubeProxyConfiguration;
    /** Of its devices; null: not looked at. */
    readonly addresses: readonly DeviceAddress[] | null;
    readonly desired: NonNullable<TraceInput["desired"]>;
  },
): Trace {
  const nodeAddresses = knownNodeAddresses(desired.state.node, addresses ?? [], config);
  const around = { ...UNKNOWN_HOST, addresses };
  const source = readSource(from, destination, { around, nodeAddresses, podInterface: podInterface(config) });
  return tracePacket({
    family: destination.family,
    packet: packetOf(source, destination),
    hostState: { nodeAddresses, affinity: new Map(), nowSeconds: 0 },
    desired,
    live: null,
    findings: [],
    notes: source.note === null ? [] : [source.note],
  });
}

/** The rules of another mode may serve the same packets, until something changes. */
export function modeFinding(mode: string, { proxies }: Pick<LiveRules, "proxies">): readonly string[] {
  const hooked = proxies.filter(({ isHooked }) => isHooked);
  if (hooked.length === 0 || hooked.some((proxy) => proxy.mode === mode)) return [];
  return [
    `This node should have rules of mode ${mode}, and has those of ${hooked.map(proxyText).join("; ")}`,
  ];
}

function quarantineFinding(
  quarantined: ReadonlyMap<NamespacedName, string> | null,
  service: TracedService | null,
): readonly string[] {
  const why = service === null ? undefined : quarantined?.get(service.port.namespacedName);
  return why === undefined
    ? []
    : [`The kernel has refused the rules of ${service?.port.namespacedName}: ${why}`];
}

function liveFindings({ proxies }: LiveRules, flow: Flow | null, packet: Packet): readonly string[] {
  const findings: string[] = [];
  const hooked = proxies.filter(({ isHooked }) => isHooked);
  if (hooked.length > 1) {
    findings.push(`Rules of several service proxies are in force: ${hooked.map(proxyText).join("; ")}`);
  }
  for (const proxy of proxies) {
    if (!proxy.isHooked) findings.push(`No packet is led to the rules of ${proxyText(proxy)}`);
  }
  if (proxies.length === 0) findings.push("There are no rules of a service proxy");
  if (packet.state === "NEW") findings.push(...new Set(flow?.outcomes.flatMap(foreignFindings)));
  return findings;
}

function proxyText({ mode, layout, sign }: FoundProxy): string {
  return mode === "nftables" ? `${layout} (${mode}: ${sign})` : `${mode} mode (${sign})`;
}

function serviceOf(
  { family, packet, hostState }: TraceInput,
  desired: DesiredState,
  flow: Flow | null,
  notes: string[],
): TracedService | null {
  const state = stateOf(desired, family);
  const ip = parseIp(packet.destination);
  if (ip === null) return null;
  const destination = {
    ip: ip.text,
    port: packet.port,
    protocol: serviceProtocol(packet.protocol),
    isNodeAddress: isNodeAddress(ip, hostState),
  };
  const { match, sameAddress } = findService(state, destination);
  for (const { service, destination: lost, reason } of desired.unserved) {
    // A destination without a port is an address that no Service may have.
    if (
      lost.split(" ").includes(ip.text) ||
      lost === `node port ${packet.port}/${packet.protocol.toUpperCase()}`
    ) {
      notes.push(`Service ${service} asks for ${lost} and does not get it: ${reason}`);
    }
  }
  if (match === null) {
    const [first] = sameAddress;
    const ports = sameAddress.map(({ port, protocol }) => `${port}/${protocol}`).join(", ");
    notes.push(
      ...present(farNodePortNote(state, packet, destination.isNodeAddress)),
      first === undefined
        ? `No Service has ${ip.text} port ${packet.port}/${packet.protocol}`
        : `${ip.text} is an address of Service ${first.namespacedName}, whose ports are ${ports}`,
      ...otherUses(desired, state, ip.text),
    );
    return null;
  }
  const { port, kind } = match;
  const endpoints = state.endpoints.get(port.namespacedName)?.get(port.key) ?? [];
  const uses = endpointUses(endpoints, port, state.node);
  if (endpoints.length === 0) {
    const { objects } = desired;
    const lack = objects.length === 0 ? "" : `: ${endpointLack(port, family, objects)}`;
    notes.push(`Service ${port.text} has no endpoints${lack}`);
  }
  notes.push(
    ...uses.notes,
    ...unplacedNotes(port, desired.objects),
    ...present(
      strayRouteNote(uses, hostState, family),
      sourceRangeNote(port, kind, packet),
      closedNodePortNote(port, kind, packet, flow),
    ),
  );
  return { port, kind, policy: policyOf(port, kind, uses, flow), uses };
}

function present(...notes: readonly (string | null)[]): readonly string[] {
  return notes.filter((note) => note !== null);
}

/** What an address is that no Service is served at. */
function otherUses({ objects }: DesiredState, { endpoints }: ProxyState, ip: string): readonly string[] {
  const ofEndpoint = [...endpoints].filter(([, ports]) =>
    ports.values().some((list) => list.some((endpoint) => endpoint.ip === ip))
  ).map(([name]) => name);
  const balanced = objects.filter((object): object is Service =>
    object.kind === "Service" &&
    object.loadBalancerIngress.some((one) => one.ip === ip && one.ipMode !== "VIP")
  );
  return [
    ...present(ofEndpoint.length === 0 ? null : `${ip} is an endpoint of Service ${few(ofEndpoint)}`),
    ...balanced.map(({ namespace, name }) =>
      `${ip} is a load-balancer IP of Service ${namespace}/${name} with ipMode Proxy: packets to it go to the load balancer`
    ),
  ];
}

/** An endpoint of this node has an interface of its own in most networks; without it packets go where all others do. */
function strayRouteNote(
  { endpoints }: EndpointUses,
  { outInterface, nodeAddresses }: HostState,
  family: IpFamily,
): string | null {
  const world = outInterface?.(WORLD[family]) ?? null;
  const stray = endpoints.map(({ endpoint }) => endpoint).filter(({ ip, isLocal }) =>
    isLocal && !nodeAddresses.includes(ip) && outInterface?.(ip) === world
  );
  if (world === null || stray.length === 0) return null;
  const addresses = few([...new Set(stray.map(({ ip }) => ip))]);
  return `The route to ${addresses}, which should be on this node, leads out of ${world}, as that to the world does`;
}

/** Node ports are open where rules lead from an address to them, which the configuration decides. */
function closedNodePortNote(
  port: ServicePort,
  kind: DestinationKind,
  { destination }: Packet,
  flow: Flow | null,
): string | null {
  const isClosed = kind === "node port" && flow !== null &&
    flow.outcomes.every(({ verdict, translatedTo }) => verdict === "accept" && translatedTo === "");
  return isClosed
    ? `Node port ${port.nodePort} of ${port.text} is not open on ${destination}: nodePortAddresses (--nodeport-addresses) and the mode decide where it is`
    : null;
}

/** A node port that is asked of another machine. */
function farNodePortNote(
  { services }: ProxyState,
  { destination, port, protocol }: Packet,
  isNodeAddress: boolean,
): string | null {
  if (isNodeAddress || port === 0) return null;
  const wanted = serviceProtocol(protocol);
  const found = [...services.values()].flat().find((one) => one.nodePort === port && one.protocol === wanted);
  return found === undefined
    ? null
    : `${destination} is no address of this node, on whose own addresses node port ${port} of ${found.text} is`;
}

/** Source ranges guard load-balancer IPs, in all modes. */
function sourceRangeNote(port: ServicePort, kind: DestinationKind, { source }: Packet): string | null {
  const ranges = port.loadBalancerSourceRanges;
  const ip = parseIp(source);
  if (kind !== "load-balancer IP" || ranges.length === 0 || ip === null) return null;
  const isIn = ranges.some((text) => {
    const cidr = parseCidr(text);
    return cidr !== null && cidrContains(cidr, ip);
  });
  return isIn
    ? null
    : `Source ${source} is in none of the source ranges of ${port.namespacedName}: ${ranges.join(", ")}`;
}

/** By whose rules the packet went, where that depends on where it comes from; else by the policy. */
function policyOf(
  port: ServicePort,
  kind: DestinationKind,
  { endpoints }: EndpointUses,
  flow: Flow | null,
): "cluster" | "local" {
  const isLocal = kind === "cluster IP" ? port.internalPolicyLocal : port.externalPolicyLocal;
  if (!isLocal || kind === "cluster IP") return isLocal ? "local" : "cluster";
  // External addresses keep the policy for the world only: pods and the node get any endpoint.
  const sent = new Set(flow?.outcomes.map(({ translatedTo }) => translatedTo));
  const isBeyondLocal = endpoints.some(({ endpoint, local }) =>
    sent.has(endpoint.key) && local?.isUsed !== true
  );
  return isBeyondLocal ? "cluster" : "local";
}
