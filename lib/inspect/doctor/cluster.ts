/**
 * Checks of objects: whether the Node is this machine's, how local traffic is detected, which addresses of
 * Services are not served, and whether manifests can be read.
 *
 * @module
 */
import { familySettings } from "../../backend/planning.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { likelyClusterCidrs } from "../../model/cluster_networks.ts";
import type { UnservedDestination } from "../../model/destination_claims.ts";
import { parseIp } from "../../model/ip.ts";
import { nodeIps } from "../../model/node.ts";
import { FAMILIES, type IpFamily, type NodeObject } from "../../model/objects.ts";
import { nodeUse } from "../../node/unserved_families.ts";
import { readManifests } from "../../source/files/file_source.ts";
import { counted, few } from "../../text/words.ts";
import { nodesAt, stateOfObjects } from "../desired/desired.ts";
import { failure, type Finding, ok, rejectedText, warning, warnings } from "./report.ts";

export interface OwnMachine {
  readonly nodeName: string;
  /** Canonical addresses of this machine; null if the runtime does not grant it. */
  readonly ownIps: readonly string[] | null;
  readonly bindAddress: string;
  /** Families that the mode cannot serve here. */
  readonly refused: readonly IpFamily[];
  /** Known Nodes of the cluster. */
  readonly allNodes: readonly NodeObject[];
}

export function checkNode(node: NodeObject | null, machine: OwnMachine): readonly Finding[] {
  const check = "node";
  const { nodeName, ownIps, refused, allNodes, bindAddress } = machine;
  if (node === null) {
    const what = `the cluster has no Node ${nodeName}: topology, node ports and policy Local go wrong`;
    const namesakes = nodesAt(allNodes, ownIps ?? []).map(({ name }) => name);
    const [first] = namesakes;
    return [
      first === undefined
        ? failure(check, what, "name it as kubectl get nodes does: --hostname-override=NAME")
        : failure(
          check,
          `${what}; Node ${few(namesakes)} has an address of this machine`,
          `--hostname-override=${first}`,
        ),
    ];
  }
  const addresses = node.addresses.map(({ address }) => parseIp(address)?.text)
    .filter((ip) => ip !== undefined);
  const isElsewhere = addresses.length > 0 && ownIps !== null &&
    !addresses.some((ip) => ownIps.includes(ip));
  const uses = refused.map((family) => nodeUse(node, family)).filter((use) => use !== null);
  const findings = [
    ...warnings(check, null, [
      addresses.length === 0 && [
        `Node ${nodeName} has no address: node ports on primary addresses wait for one`,
        "set it on the kubelet (--node-ip), or name one with --bind-address",
      ],
      isElsewhere && [
        `none of the addresses of Node ${nodeName} (${
          few(addresses)
        }) is on this machine: is it another one's?`,
        "if it is, name the right one with --hostname-override; behind a NAT all is well",
      ],
    ]),
    ...uses.map((use) => {
      const what = `${use}, of an IP family that this node cannot serve`;
      return failure(check, what, "fix what the check of the mode names");
    }),
  ];
  if (findings.length > 0) return findings;
  const families = FAMILIES.filter((family) => nodeUse(node, family) !== null).join(" and ");
  const { primaryFamily } = nodeIps(node, bindAddress);
  return [ok(check, `Node ${nodeName}: ${addresses.join(", ")}; ${families}, first ${primaryFamily}`)];
}

/** Reason why the cluster is known to use IPv6 here; null: nothing says so. */
export function ipv6Use(
  node: NodeObject | null,
  { clusterCIDR, bindAddress }: Pick<KubeProxyConfiguration, "clusterCIDR" | "bindAddress">,
): string | null {
  if (node !== null) return nodeUse(node, "IPv6");
  if (clusterCIDR.includes(":")) return `the cluster CIDR is ${clusterCIDR}`;
  const bind = parseIp(bindAddress);
  return bind?.family === "IPv6" && bind.text !== "::" ? `the node's address is ${bind.text}` : null;
}

/**
 * Checks how local traffic is detected: other traffic is masqueraded, or not.
 *
 * @param node the own Node; null if it is unknown
 */
export function checkLocalTraffic(
  config: KubeProxyConfiguration,
  { mode, node, allNodes }: {
    readonly mode: ProxyMode;
    readonly node: NodeObject | null;
    readonly allNodes: readonly NodeObject[];
  },
): readonly Finding[] {
  const check = "local traffic";
  // In userspace mode, packets come from kproxy's own sockets for any client.
  if (mode === "userspace") return [];
  const section = mode === "nftables" ? "nftables" : "iptables";
  const used = FAMILIES.filter((family) => node === null || nodeUse(node, family) !== null);
  const asked = used.map((family) => familySettings(config, section, family, node));
  const problems = asked.flatMap(({ problem }) => problem === null ? [] : [problem.message]);
  // If the node's families are unknown, one without a network may be one that the node does not have.
  if (problems.length === 0 || (node === null && problems.length < asked.length)) {
    return [ok(check, `told apart by ${config.detectLocalMode}`)];
  }
  const effect = asked.every(({ settings }) => settings.masqueradeAll)
    ? "all traffic to cluster IPs is masqueraded"
    : "what comes to cluster IPs from outside of the cluster is not masqueraded, so answers may miss their way";
  const likely = [...likelyClusterCidrs(allNodes.flatMap(({ podCIDRs }) => podCIDRs)).values()].join(",");
  const value = likely === "" ? "the network of all Pods" : `likely ${likely}, by the Nodes' pod CIDRs`;
  const fix = config.detectLocalMode === "ClusterCIDR"
    ? `set clusterCIDR (--cluster-cidr): ${value}; kube-controller-manager's --cluster-cidr is the right one`
    : "set what detectLocalMode goes by";
  return [warning(check, `${[...new Set(problems)].join("; ")}: ${effect}`, fix)];
}

/** Unserved destinations as a running kproxy reports them: how many, and the first ones. */
export interface UnservedDestinations {
  readonly count: number;
  readonly destinations: readonly UnservedDestination[];
}

/** One finding for all destinations of Services that are not served. */
export function checkUnserved({ count, destinations }: UnservedDestinations): readonly Finding[] {
  const check = "addresses";
  const [first] = destinations;
  if (first === undefined) return [ok(check, "Services get all that they ask for")];
  const { service, destination, reason } = first;
  const others = count === 1 ? "" : `; and ${count - 1} more`;
  const all = counted(count, "destination");
  return [warning(
    check,
    `${all} of Services not served: ${destination} of ${service}: ${reason}${others}`,
    "take it out of the Service, or allow it; kproxy service list tells all of them",
  )];
}

/** Standard input can be read only once, and not by this check. */
const STDIN_PATH = "-";

/**
 * Checks the manifests that objects come from; no findings if none are named.
 *
 * @param nodeName to check Services' addresses against the node's; null: a running kproxy has reported them
 */
export async function checkManifests(
  config: KubeProxyConfiguration,
  nodeName: string | null,
): Promise<readonly Finding[]> {
  const check = "manifests";
  const { manifests } = config.kproxy;
  if (manifests.length === 0 || manifests.includes(STDIN_PATH)) return [];
  try {
    const { objects, problems } = await readManifests(manifests);
    const places = problems.map(({ where, object, message }) => `${where}: ${object}: ${message}`);
    const read = problems.length === 0
      ? ok(check, `${counted(objects.length, "object")} in ${manifests.join(", ")}`)
      : warning(check, rejectedText(places), "fix these objects, no proxy serves them");
    if (nodeName === null) return [read];
    const { unserved } = stateOfObjects(objects, nodeName, () => {}, config);
    return [read, ...checkUnserved({ count: unserved.length, destinations: unserved })];
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return [failure(check, error.message, "name files or folders that are there: --manifests")];
  }
}
