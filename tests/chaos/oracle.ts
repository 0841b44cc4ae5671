/**
 * What objects promise to packets, from the words of Kubernetes' API alone: no planner, tracker or decoder of kproxy's has a part in it.
 * So rules that are wrong in the same way at every start break a promise, although each start makes the same ones.
 *
 * @module
 */
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";
import { cidrContains, joinHostPort, parseCidr, parseIp } from "../../lib/model/ip.ts";
import type { LiveNode } from "../../lib/inspect/live/live.ts";
import { type Flow, formatFraction, type Packet } from "../../lib/sim/flow.ts";
import { RulesetSimulator } from "../../lib/sim/ruleset_simulator.ts";
import type { ApiJson } from "../flows/objects.ts";

/** The node that packets pass. */
export interface OracleNode {
  readonly mode: "iptables" | "nftables" | "ipvs";
  readonly name: string;
  readonly zone: string;
  /** Where its node ports are; one of each family that has any. */
  readonly nodePortIps: readonly string[];
}

/** A packet, and what may become of it: one of several things only if Services want the same destination. */
interface Promised {
  readonly packet: Packet;
  /** In the words of {@linkcode fate}. */
  readonly fates: readonly string[];
}

type Where = "pod" | "world" | "node";
/** Packets come from each of them. Of the world one is in a range that load balancers may be limited to. */
const SOURCES: readonly (readonly [source: string, inInterface: string, where: Where])[] = [
  ["10.244.0.5", "cni0", "pod"],
  ["198.51.100.9", "eth0", "world"],
  ["192.0.2.77", "eth0", "world"],
  ["192.0.2.10", "", "node"],
  ["fd00:10:244::5", "cni0", "pod"],
  ["fd00:a::9", "eth0", "world"],
  ["fd00:192::10", "", "node"],
];

interface Target {
  readonly ip: string;
  readonly key: string;
  readonly isLocal: boolean;
  readonly ready: boolean;
  readonly draining: boolean;
  readonly zones: readonly string[];
}

/** One way to a Service port. */
interface Destination {
  readonly kind: "cluster" | "external" | "load balancer" | "node port";
  readonly ip: string;
  readonly port: number;
  readonly protocol: Packet["protocol"];
  readonly service: V1Service;
  /**
   * It promises nothing: another Service has its cluster IP, which no API server gives twice, so that one of them is not served at all; or
   * two slices say different things of one endpoint.
   */
  readonly isOpen: boolean;
  readonly targets: readonly Target[];
}

const isSix = (ip: string): boolean => ip.includes(":");
/** Packets to such addresses reach more than one host. */
const NO_POD = /^(?:22[4-9]|23\d|255)\.|^0\.|^127\.|^169\.254\./;

/** Words for what became of a packet: endpoints with their shares and whether they see the node's address, `rejected`, `dropped`, `nobody`. */
function fate({ outcomes }: Flow): string {
  const parts = outcomes.map(({ verdict, translatedTo, probability, masquerade }) => {
    if (verdict !== "accept") return verdict === "drop" ? "dropped" : "rejected";
    if (translatedTo === "") return "nobody";
    return reached(translatedTo, formatFraction(probability), masquerade);
  });
  return [...new Set(parts)].sort().join(" | ");
}

function reached(key: string, share: string, masquerade: boolean): string {
  return `${key} (${share})${masquerade ? " by the node" : ""}`;
}

function targetsOf(
  { metadata }: V1Service,
  portName: string,
  slices: readonly V1EndpointSlice[],
  node: OracleNode,
  six: boolean,
): readonly Target[] | "told twice" {
  const found = new Map<string, Target>();
  for (const { metadata: own, addressType, ports, endpoints } of slices) {
    const service = own?.labels?.["kubernetes.io/service-name"];
    if (service !== metadata?.name || own?.namespace !== metadata?.namespace) continue;
    const port = ports?.find(({ name }) => (name ?? "") === portName)?.port;
    if ((addressType === "IPv6") !== six || port === undefined) continue;
    for (const { addresses, nodeName, conditions, hints } of endpoints ?? []) {
      const [ip = ""] = addresses;
      if (NO_POD.test(ip)) continue;
      const ready = conditions?.ready ?? true;
      const target: Target = {
        ip,
        key: joinHostPort(ip, port),
        isLocal: nodeName === node.name,
        ready,
        draining: (conditions?.serving ?? ready) && (conditions?.terminating ?? false),
        zones: (hints?.forZones ?? []).map(({ name }) => name),
      };
      const known = found.get(target.key);
      // Which of them counts is not promised.
      if (known !== undefined && JSON.stringify(known) !== JSON.stringify(target)) return "told twice";
      found.set(target.key, target);
    }
  }
  return [...found.values()];
}

/** Those that are ready, or else those that still answer while they end. */
function answering(targets: readonly Target[]): readonly Target[] {
  const ready = targets.filter((target) => target.ready);
  return ready.length > 0 ? ready : targets.filter((target) => target.draining);
}

/** Of the whole cluster, unless every one that is ready says for which zones it is, and one is for the node's. */
function clusterTargets(targets: readonly Target[], { zone }: OracleNode): readonly Target[] {
  const ready = targets.filter((target) => target.ready);
  const near = ready.filter(({ zones }) => zones.includes(zone));
  const areHinted = zone !== "" && ready.every(({ zones }) => zones.length > 0);
  return areHinted && near.length > 0 ? near : answering(targets);
}

function destinationsOf(objects: readonly ApiJson[], node: OracleNode): Destination[] {
  const all = objects as readonly unknown[] as readonly (V1Service & V1EndpointSlice)[];
  const slices = all.filter(({ kind }) => kind === "EndpointSlice");
  const services = all.filter(({ kind }) => kind === "Service");
  return services.flatMap((service): Destination[] => {
    const isRival = services.some((other) =>
      other !== service && other.spec?.clusterIP === service.spec?.clusterIP
    );
    const { clusterIP = "", clusterIPs = [clusterIP], ports = [], externalIPs = [] } = service.spec ?? {};
    const vips = (service.status?.loadBalancer?.ingress ?? []).map(({ ip = "" }) => ip);
    return ports.flatMap(({ name = "", port, nodePort, protocol = "TCP" }) => {
      const ways = [
        ...clusterIPs.map((ip) => ["cluster", ip, port] as const),
        ...externalIPs.map((ip) => ["external", ip, port] as const),
        ...vips.map((ip) => ["load balancer", ip, port] as const),
        ...(nodePort === undefined ? [] : node.nodePortIps.map((ip) => ["node port", ip, nodePort] as const)),
      ];
      return ways.flatMap(([kind, ip, port]) => {
        // A family that the Service is not of has no endpoints of its own.
        if (!clusterIPs.some((own) => isSix(own) === isSix(ip))) return [];
        const targets = targetsOf(service, name, slices, node, isSix(ip));
        return [{
          kind,
          ip,
          port,
          protocol: protocol.toLowerCase() as Packet["protocol"],
          service,
          isOpen: isRival || targets === "told twice",
          targets: targets === "told twice" ? [] : targets,
        }];
      });
    });
  });
}

function contains(ranges: readonly string[], source: string): boolean {
  const ip = parseIp(source)!;
  return ranges.some((range) => cidrContains(parseCidr(range)!, ip));
}

/** What this Service promises to a packet; none: nothing that holds in this mode (tests/flows says what holds instead). */
function promise(to: Destination, source: string, where: Where, node: OracleNode): readonly string[] {
  const { kind, service: { spec = {} }, targets } = to;
  const isLocalOnly =
    (kind === "cluster" ? spec.internalTrafficPolicy : spec.externalTrafficPolicy) === "Local";
  const ranges = kind === "load balancer" ? spec.loadBalancerSourceRanges ?? [] : [];
  if (to.isOpen) return [];
  if (ranges.length > 0) {
    // Whether it is a client of its own is a matter of its address, and of the mode.
    if (where === "node") return [];
    // In some modes it is told of a Service without endpoints first.
    if (!contains(ranges, source)) {
      return answering(targets).length > 0 ? ["dropped"] : ["dropped", "rejected"];
    }
  }
  // One virtual server answers pods, the node and the world.
  if (node.mode === "ipvs" && (isLocalOnly || spec.externalTrafficPolicy === "Local")) return [];
  const isFromOutside = where === "world" || kind === "cluster";
  const chosen = isLocalOnly && isFromOutside
    ? answering(targets.filter(({ isLocal }) => isLocal))
    : clusterTargets(targets, node);
  if (chosen.length === 0) {
    if (answering(targets).length > 0) return ["dropped"];
    // Who sends from the node itself may find out by himself.
    return where === "node" && kind !== "cluster" ? ["rejected", "nobody"] : ["rejected"];
  }
  const isByNode = where === "node" ||
    (kind === "cluster" ? where === "world" : !isLocalOnly);
  const share = formatFraction({ numerator: 1n, denominator: BigInt(chosen.length) });
  return [chosen.map(({ key }) => reached(key, share, isByNode)).sort().join(" | ")];
}

/** Says what becomes of a packet. */
export type Send = (packet: Packet) => Flow;

/** Through what a kernel holds. */
export function throughRules(live: LiveNode): Send {
  const simulators = new Map([...live].map(([family, rules]) => [family, new RulesetSimulator(rules)]));
  const nodeAddresses = SOURCES.flatMap(([source, , where]) => where === "node" ? [source] : []);
  return (packet) => {
    const simulator = simulators.get(isSix(packet.destination) ? "IPv6" : "IPv4");
    return simulator!.send(packet, { nodeAddresses, affinity: new Map(), nowSeconds: 0 });
  };
}

/**
 * What packets meet that the objects do not promise, in words; empty if all is as they say.
 *
 * @param idle addresses and ports that Services had and may have again, of which those that no object names must lead nowhere
 */
export function brokenPromises(
  send: Send,
  objects: readonly ApiJson[],
  node: OracleNode,
  idle: readonly (readonly [ip: string, port: number])[] = [],
): string[] {
  return promisesOf(objects, node, idle).flatMap(({ packet, fates }) => {
    const flow = send(packet);
    const found = fate(flow);
    if (fates.includes(found) && flow.problems.length === 0) return [];
    const { source, inInterface, protocol, port } = packet;
    const where = inInterface === "" ? "the node" : inInterface;
    const to = `${joinHostPort(packet.destination, port)}/${protocol}`;
    return [`${source} at ${where} → ${to}: ${found}, not ${fates.join(" or ")}${flow.problems.join("; ")}`];
  });
}

/** Everything that these objects promise. */
function promisesOf(
  objects: readonly ApiJson[],
  node: OracleNode,
  idle: readonly (readonly [ip: string, port: number])[],
): readonly Promised[] {
  const keyOf = ({ ip, port, protocol }: Pick<Destination, "ip" | "port" | "protocol">): string =>
    `${joinHostPort(ip, port)}/${protocol}`;
  const groups = Map.groupBy(destinationsOf(objects, node), keyOf);
  const unserved = idle.map(([ip, port]) => ({ ip, port, protocol: "tcp" as const })).filter((one) =>
    !JSON.stringify(objects).includes(`"${one.ip}"`)
  );
  const packets = (to: Pick<Destination, "ip" | "port" | "protocol">) =>
    SOURCES.filter(([source]) => isSix(source) === isSix(to.ip)).map(([source, inInterface, where]) => ({
      where,
      packet: {
        source,
        destination: to.ip,
        protocol: to.protocol,
        port: to.port,
        inInterface,
        state: "NEW",
        mark: 0,
      } satisfies Packet,
    }));
  return [
    ...[...groups.values()].flatMap((rivals) =>
      packets(rivals[0]!).flatMap(({ packet, where }) => {
        const fates = rivals.map((to) => promise(to, packet.source, where, node));
        return fates.some((own) => own.length === 0) ? [] : [{ packet, fates: fates.flat() }];
      })
    ),
    ...unserved.flatMap((to) =>
      packets(to).map(({ packet }) => ({ packet, fates: ["nobody", "rejected", "dropped"] }))
    ),
  ];
}
