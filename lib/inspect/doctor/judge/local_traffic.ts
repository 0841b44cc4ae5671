/**
 * Judges how traffic of the cluster's own Pods is told from that of others, which is masqueraded.
 *
 * @module
 */
import { familySettings } from "../../../backend/family_settings.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../../config/types.ts";
import { likelyClusterCidrs } from "../../../model/cluster_cidr.ts";
import { FAMILIES, type NodeObject } from "../../../model/objects.ts";
import { nodeUse } from "../../../model/unserved_family.ts";
import { type Fact, known } from "../fact.ts";
import { type Finding, ok, warning } from "../finding.ts";

const CHECK = "local traffic";

/** What the cluster says. */
export interface ClusterNetworks {
  readonly mode: ProxyMode;
  /** The own one; null if it is not known. */
  readonly node: NodeObject | null;
  readonly podCIDRs: Fact<readonly string[]>;
}

export function judgeLocalTraffic(
  config: KubeProxyConfiguration,
  { mode, node, podCIDRs }: ClusterNetworks,
): readonly Finding[] {
  // There packets come from kproxy's own sockets, whoever asks.
  if (mode === "userspace") return [];
  const section = mode === "nftables" ? "nftables" : "iptables";
  const used = FAMILIES.filter((family) => node === null || nodeUse(node, family) !== null);
  const asked = used.map((family) => familySettings(config, section, family, node));
  const problems = asked.flatMap(({ problem }) => problem === null ? [] : [problem.message]);
  // Where nobody knows which families the node has, one that has no network may be one that it has not.
  if (problems.length === 0 || (node === null && problems.length < asked.length)) {
    return [ok(CHECK, `told apart by ${config.detectLocalMode}`)];
  }
  const isAll = asked.every(({ settings }) => settings.masqueradeAll);
  const effect = isAll
    ? "all traffic to cluster IPs is masqueraded"
    : "what comes to cluster IPs from outside of the cluster is not masqueraded, so answers may miss their way";
  return [warning(CHECK, `${[...new Set(problems)].join("; ")}: ${effect}`, mendOf(config, podCIDRs))];
}

function mendOf(config: KubeProxyConfiguration, podCIDRs: Fact<readonly string[]>): string {
  if (config.detectLocalMode !== "ClusterCIDR") return "set what detectLocalMode goes by";
  const likely = [...likelyClusterCidrs(known(podCIDRs) ?? []).values()].join(",");
  const value = likely === "" ? "the network of all Pods" : `likely ${likely}, by the Nodes' pod CIDRs`;
  return `set clusterCIDR (--cluster-cidr): ${value}; kube-controller-manager's --cluster-cidr is the right one`;
}
