/**
 * Which UDP flows contradict the desired state, and the fewest deletions that remove just them.
 *
 * UDP has no set-up that would fail: a client that keeps sending keeps its translation alive, to an endpoint that is gone or
 * to nowhere, for as long as it sends.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { FlowGroup, ZoneOptions } from "./flow_group.ts";
import type { UdpTargets } from "./udp_targets.ts";

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
