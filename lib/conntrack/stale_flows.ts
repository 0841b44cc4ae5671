/**
 * Which UDP flows contradict the desired state, and the fewest deletions that remove just them.
 *
 * UDP has no set-up that would fail: a client that keeps sending keeps its translation alive, to an endpoint that is gone or
 * to nowhere, for as long as it sends.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import { joinHostPort, parseIp } from "../model/ip.ts";
import type { Endpoint, ProxyState, ServicePort } from "../model/state.ts";

/** What flows are judged by. */
export interface FlowRules {
  readonly targets: UdpTargets;
  /** What earlier states translated. */
  readonly former: UdpTargets;
  /** True for the addresses that node ports are served on. */
  readonly isNodeAddress: (ip: string) => boolean;
}

/**
 * Decides which flows go where no flow would go now:
 *
 * - to a frontend, but not answered by one of its endpoints: translated to another, or not translated at all;
 * - to what used to be a frontend, and still translated to one of its former endpoints.
 *
 * In another tracking zone than the default one, only translated flows count: there, a CNI may track the same packet a second
 * time before it is translated.
 *
 * Source: kube-proxy 1.36 conntrack reconciler; differs: node ports count on the node's own addresses only, so that flows to
 * the same port of other hosts are left alone; flows of frontends that are gone are found; zones.
 */
export function isStale(flow: FlowGroup, { targets, former, isNodeAddress }: FlowRules): boolean {
  const isTranslated = flow.destination !== flow.replySource;
  const find = ({ frontends, nodePorts }: UdpTargets): ReadonlySet<string> | undefined =>
    frontends.get(flow.destination) ??
      (isNodeAddress(flow.destinationIp) ? nodePorts.get(flow.destinationPort) : undefined);
  const wanted = find(targets);
  if (wanted !== undefined) {
    return !wanted.has(flow.replySource) && (isTranslated || flow.zone.length === 0);
  }
  return isTranslated && (find(former)?.has(flow.replySource) ?? false);
}

/** One deletion, as the options of `conntrack -D`, and how many flows of the dump it removes. */
export interface FlowDeletion {
  readonly options: readonly string[];
  readonly flows: number;
}

/** Only the default zone: without it flows of all zones would match. */
const DEFAULT_ZONE: ZoneOptions = ["--zone", "0", "--orig-zone", "0", "--reply-zone", "0"];

/**
 * Yields deletions that match every stale flow of the dump and no other, those with most flows first. Each costs the program
 * a pass over the whole table, so flows that share destination and endpoint are one deletion, and so are all flows to an
 * endpoint that nothing leads to any more.
 */
export function planDeletions(
  family: IpFamily,
  groups: readonly FlowGroup[],
  rules: FlowRules,
): readonly FlowDeletion[] {
  const stale: FlowGroup[] = [];
  const keptSources = new Set<string>();
  let zoned = false;
  for (const group of groups) {
    if (isStale(group, rules)) stale.push(group);
    else keptSources.add(group.replySource);
    if (group.zone.length > 0) zoned = true;
  }
  if (stale.length === 0) return [];
  for (const sets of [rules.targets.frontends, rules.targets.nodePorts]) {
    // A new flow to it may appear after the dump.
    for (const keys of sets.values()) for (const key of keys) keptSources.add(key);
  }
  const deletions = new Map<string, { options: string[]; flows: number }>();
  for (const group of stale) {
    const zone = group.zone.length > 0 ? group.zone : zoned ? DEFAULT_ZONE : [];
    const bySource = group.destination !== group.replySource && !keptSources.has(group.replySource);
    const options = ["-p", "udp", "-f", family === "IPv4" ? "ipv4" : "ipv6"];
    if (!bySource) {
      options.push("--orig-dst", group.destinationIp, "--orig-port-dst", String(group.destinationPort));
    }
    options.push("--reply-src", group.replyIp, "--reply-port-src", String(group.replyPort), ...zone);
    const key = options.join(" ");
    const known = deletions.get(key);
    if (known === undefined) deletions.set(key, { options, flows: group.flows });
    else known.flows += group.flows;
  }
  return [...deletions.values()].sort((left, right) => right.flows - left.flows);
}

/** The tracking zones of a flow, as `conntrack` options; empty for the default zone. */
export type ZoneOptions = readonly string[];

/**
 * All flows of a dump that were sent to the same address and are answered from the same address, in one zone: nothing else
 * decides whether they are stale.
 */
export interface FlowGroup {
  /** Where the client sends to: `ip:port` or `[ip]:port`. */
  readonly destination: string;
  readonly destinationIp: string;
  readonly destinationPort: number;
  /** Where the answers come from: the endpoint, or the destination itself if it is not translated. */
  readonly replySource: string;
  readonly replyIp: string;
  readonly replyPort: number;
  readonly zone: ZoneOptions;
  readonly flows: number;
}

/** One line: the original tuple, then the reply tuple, each with counters where accounting is on. */
const TUPLE = String.raw`src=([0-9a-f.:]+) dst=([0-9a-f.:]+) sport=(\d{1,5}) dport=(\d{1,5})(?!\d)`;
const FLOW = new RegExp(String.raw`^udp +17 .*?${TUPLE}(.*?)${TUPLE}(.*)$`, "gm");
const ZONE = / (zone|zone-orig|zone-reply)=(\d{1,5})(?!\d)/g;
const ZONE_OPTION: Readonly<Record<string, string>> = {
  "zone": "--zone",
  "zone-orig": "--orig-zone",
  "zone-reply": "--reply-zone",
};

interface CountedGroup extends FlowGroup {
  flows: number;
}

/** Groups the UDP flows of a dump, in order of first appearance. Lines of other kinds, without addresses, and lines cut off are passed over. */
export function groupFlows(dump: string): readonly FlowGroup[] {
  const groups = new Map<string, CountedGroup>();
  for (const match of dump.matchAll(FLOW)) {
    const [, , dst = "", , dport = "", middle = "", replySrc = "", , replySport = "", , rest = ""] = match;
    const tail = middle + rest;
    const zones = tail.includes("zone") ? zoneOptions(tail) : NO_ZONE;
    const key = `${dst} ${dport} ${replySrc} ${replySport} ${zones.join(" ")}`;
    const known = groups.get(key);
    if (known !== undefined) {
      known.flows++;
      continue;
    }
    const [destinationIp, replyIp] = [parseIp(dst)?.text, parseIp(replySrc)?.text];
    if (destinationIp === undefined || replyIp === undefined) continue;
    groups.set(key, {
      destination: joinHostPort(destinationIp, Number(dport)),
      destinationIp,
      destinationPort: Number(dport),
      replySource: joinHostPort(replyIp, Number(replySport)),
      replyIp,
      replyPort: Number(replySport),
      zone: zones,
      flows: 1,
    });
  }
  return [...groups.values()];
}

const NO_ZONE: ZoneOptions = [];

function zoneOptions(text: string): ZoneOptions {
  return [...text.matchAll(ZONE)].flatMap(([, name = "", id = ""]) => [ZONE_OPTION[name] ?? "", id]);
}

/** A snapshot of one family. Addresses are `ip:port` or `[ip]:port`. */
export interface UdpTargets {
  /** Cluster IPs, external IPs and load balancer IPs → where flows to them may lead. */
  readonly frontends: ReadonlyMap<string, ReadonlySet<string>>;
  /** Node port → where flows to it may lead. */
  readonly nodePorts: ReadonlyMap<number, ReadonlySet<string>>;
}

export const NO_UDP_TARGETS: UdpTargets = { frontends: new Map(), nodePorts: new Map() };

/**
 * Yields every UDP frontend of the state with the endpoints that flows to it may lead to, whatever node they are on and
 * whatever traffic policy says: a flow that a live endpoint serves is left alone.
 *
 * Those are the endpoints that are ready or serving. If none is, it is all that are listed: rules refuse new flows then, but
 * a flow to an endpoint that is merely not ready may still be served, while one to an endpoint that is gone never is.
 *
 * Source: kube-proxy 1.36 conntrack reconciler; differs: it takes serving ones only, and leaves every flow of a port alone
 * that has none, also those to addresses that another pod may have by now.
 */
export function udpTargets(state: ProxyState): UdpTargets {
  const frontends = new Map<string, Set<string>>();
  const nodePorts = new Map<number, Set<string>>();
  for (const [name, ports] of state.services) {
    for (const port of ports) {
      if (port.protocol !== "UDP") continue;
      const targets = targetKeys(state.endpoints.get(name)?.get(port.key) ?? []);
      for (const ip of frontendIps(port)) addAll(frontends, joinHostPort(ip, port.port), targets);
      if (port.nodePort !== 0) addAll(nodePorts, port.nodePort, targets);
    }
  }
  return { frontends, nodePorts };
}

/** True if there is nothing of UDP to look for. */
export function isEmpty({ frontends, nodePorts }: UdpTargets): boolean {
  return frontends.size === 0 && nodePorts.size === 0;
}

/** Every frontend of either, with what either says of it. */
export function unionOfTargets(one: UdpTargets, other: UdpTargets): UdpTargets {
  const frontends = new Map<string, Set<string>>();
  const nodePorts = new Map<number, Set<string>>();
  for (const targets of [one, other]) {
    for (const [address, keys] of targets.frontends) addAll(frontends, address, keys);
    for (const [port, keys] of targets.nodePorts) addAll(nodePorts, port, keys);
  }
  return { frontends, nodePorts };
}

function targetKeys(endpoints: readonly Endpoint[]): readonly string[] {
  const usable = endpoints.filter(({ ready, serving }) => ready || serving);
  return (usable.length === 0 ? endpoints : usable).map(({ key }) => key);
}

function frontendIps({ clusterIP, externalIPs, loadBalancerVIPs }: ServicePort): readonly string[] {
  return [clusterIP, ...externalIPs, ...loadBalancerVIPs];
}

function addAll<K>(sets: Map<K, Set<string>>, key: K, members: Iterable<string>): void {
  const set = sets.get(key) ?? new Set();
  for (const member of members) set.add(member);
  sets.set(key, set);
}
