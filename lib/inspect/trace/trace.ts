/**
 * Traces one packet through desired and live rules, with its Service and why endpoints are not used.
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
  /** Source of the rules: `files a.yaml`, `the kernel`. */
  readonly from: string;
  /** Modes of the rules, e.g. `iptables`; for live rules all that were found. */
  readonly modes: readonly string[];
  readonly flow: Flow;
}

/** The ServicePort that a packet is sent to. */
export interface TracedService {
  readonly port: ServicePort;
  readonly kind: DestinationKind;
  /** Traffic policy that selects the endpoints for the packet. */
  readonly policy: "cluster" | "local";
  readonly uses: EndpointUses;
}

export interface Trace {
  readonly family: IpFamily;
  readonly packet: Packet;
  readonly service: TracedService | null;
  readonly desired: TraceSide | null;
  readonly live: TraceSide | null;
  /** Null: both sides agree, or there is only one. */
  readonly difference: TraceDifference | null;
  /** Problems of the node, one sentence each. */
  readonly findings: readonly string[];
  /** Live rules on the path that the simulator does not understand: what they do is missing in the walk. */
  readonly unsure: readonly string[];
  readonly notes: readonly string[];
  readonly problems: readonly LiveProblem[];
}

export interface TraceInput {
  readonly family: IpFamily;
  readonly packet: Packet;
  readonly hostState: HostState;
  /** Desired rules; null: not needed. */
  readonly desired: {
    readonly from: string;
    readonly mode: string;
    readonly state: DesiredState;
    readonly rules: RulesetSnapshot;
    readonly quarantined: ReadonlyMap<NamespacedName, string> | null;
  } | null;
  /** Live rules; null: not read. */
  readonly live: LiveRules | null;
  /** Problems of the machine that affect every packet, one sentence each. */
  readonly findings: readonly string[];
  readonly notes: readonly string[];
  /** What is unknown of the path, apart from its rules. */
  readonly unsure?: readonly string[];
}

/** A sound node for the desired rules: nothing but rules stops a packet. */
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
    // If a rule of another program catches the packet first, that is a finding of its own.
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

/** Traces a packet through desired rules only, on a node of which only addresses are known. */
export function traceWanted(
  from: string,
  destination: TracedDestination,
  { config, addresses, desired }: {
    readonly config: KubeProxyConfiguration;
    /** Addresses of the node's devices; null: not read. */
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

/** Reports live rules of another mode: they may serve the same packets, until something changes. */
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
    // An unserved destination without a port is an address that no Service may use.
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

/** Other uses of an address at which no Service is served. */
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

/** Warns about a local endpoint without a route of its own: in most networks it has an interface of its own. */
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

/** Warns about a node port that is not open at this address; the configuration decides where it is. */
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

/** Notes that a node port was sent to another machine's address. */
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

/** Warns about a source outside of the source ranges, which guard load-balancer IPs. */
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

/** Traffic policy for the packet: by the endpoints that it got, where that depends on its source. */
function policyOf(
  port: ServicePort,
  kind: DestinationKind,
  { endpoints }: EndpointUses,
  flow: Flow | null,
): "cluster" | "local" {
  const isLocal = kind === "cluster IP" ? port.internalPolicyLocal : port.externalPolicyLocal;
  if (!isLocal || kind === "cluster IP") return isLocal ? "local" : "cluster";
  // External addresses keep policy Local only for clients outside; pods and the node get any endpoint.
  const sent = new Set(flow?.outcomes.map(({ translatedTo }) => translatedTo));
  const isBeyondLocal = endpoints.some(({ endpoint, local }) =>
    sent.has(endpoint.key) && local?.isUsed !== true
  );
  return isBeyondLocal ? "cluster" : "local";
}
