/**
 * Endpoints of one ServicePort: how one is made, and which of them get which traffic.
 *
 * @module
 */
import { joinHostPort } from "./ip.ts";
import { compareBytes } from "./names.ts";
import type { SliceEndpoint } from "./objects.ts";
import { sameTexts, usesClusterEndpoints, usesLocalEndpoints } from "./service_port.ts";
import type { Endpoint, NodeFacts, ServicePort } from "./state.ts";

/** Endpoints that one ServicePort may send traffic to, by traffic policy. */
export interface CategorizedEndpoints {
  /** For traffic under policy Cluster; empty too if the port has no such traffic. */
  readonly cluster: readonly Endpoint[];
  /** For traffic under policy Local; empty too if the port has no such traffic. */
  readonly local: readonly Endpoint[];
  /** Every endpoint of either list, sorted by key: those that need rules. */
  readonly allReachable: readonly Endpoint[];
  /** False if no node of the cluster has an endpoint to offer: then traffic is refused rather than dropped. */
  readonly hasAny: boolean;
}

/** Makes the endpoint of one slice entry at `ip` (canonical) and `port`. */
export function makeEndpoint(source: SliceEndpoint, ip: string, port: number, nodeName: string): Endpoint {
  return {
    key: joinHostPort(ip, port),
    ip,
    port,
    isLocal: nodeName !== "" && source.nodeName === nodeName,
    ready: source.ready,
    serving: source.serving,
    terminating: source.terminating,
    zoneHints: source.zoneHints,
    nodeHints: source.nodeHints,
  };
}

/**
 * Decides which of a ServicePort's endpoints are used, by traffic policy, readiness and topology. Terminating endpoints
 * that still serve are used only where no ready one is.
 *
 * @param endpoints all endpoints of the port, sorted by key; the lists keep that order
 * @param note gets the reason why topology hints were ignored
 *
 * Source: kube-proxy 1.36 CategorizeEndpoints; differs: `allReachable` is always sorted.
 */
export function categorizeEndpoints(
  endpoints: readonly Endpoint[],
  servicePort: ServicePort,
  node: NodeFacts,
  note?: TopologyNote,
): CategorizedEndpoints {
  if (endpoints.length === 0) return { cluster: [], local: [], allReachable: [], hasAny: false };
  const useCluster = usesClusterEndpoints(servicePort);

  let cluster: readonly Endpoint[] = [];
  let filteredByHints = false;
  if (useCluster) {
    const mode = topologyMode(endpoints, node, note);
    filteredByHints = mode !== "";
    cluster = endpoints.filter((endpoint) => endpoint.ready && isAvailableFor(mode, endpoint, node));
    if (cluster.length === 0) cluster = endpoints.filter(isDraining);
  }
  if (!usesLocalEndpoints(servicePort)) {
    return { cluster, local: [], allReachable: cluster, hasAny: cluster.length > 0 };
  }

  const hasAny = cluster.length > 0 || endpoints.some((endpoint) => endpoint.ready || isDraining(endpoint));
  let local = endpoints.filter((endpoint) => endpoint.isLocal && endpoint.ready);
  let drainingLocal = false;
  if (local.length === 0) {
    local = endpoints.filter((endpoint) => endpoint.isLocal && isDraining(endpoint));
    drainingLocal = local.length > 0;
  }

  let allReachable: readonly Endpoint[];
  if (!useCluster) allReachable = local;
  else if (!filteredByHints && !drainingLocal) allReachable = cluster;
  else allReachable = union(cluster, local);
  return { cluster, local, allReachable, hasAny };
}

/** True if traffic to the cluster IP has somewhere to go. */
export function hasInternalEndpoints(port: ServicePort, endpoints: CategorizedEndpoints): boolean {
  return endpoints.hasAny && !(port.internalPolicyLocal && endpoints.local.length === 0);
}

/** True if traffic from outside to the external addresses has somewhere to go. */
export function hasExternalEndpoints(port: ServicePort, endpoints: CategorizedEndpoints): boolean {
  return endpoints.hasAny && !(port.externalPolicyLocal && endpoints.local.length === 0);
}

/** True if both lists hold equal endpoints in the same order. */
export function sameEndpoints(left: readonly Endpoint[], right: readonly Endpoint[]): boolean {
  return left.length === right.length &&
    left.every((endpoint, index) => {
      const other = right[index];
      return other !== undefined && endpoint.key === other.key && endpoint.isLocal === other.isLocal &&
        endpoint.ready === other.ready && endpoint.serving === other.serving &&
        endpoint.terminating === other.terminating &&
        sameTexts(endpoint.zoneHints, other.zoneHints) && sameTexts(endpoint.nodeHints, other.nodeHints);
    });
}

function isDraining(endpoint: Endpoint): boolean {
  return endpoint.serving && endpoint.terminating;
}

function union(cluster: readonly Endpoint[], local: readonly Endpoint[]): readonly Endpoint[] {
  const byKey = new Map<string, Endpoint>();
  for (const endpoint of cluster) byKey.set(endpoint.key, endpoint);
  for (const endpoint of local) byKey.set(endpoint.key, endpoint);
  return [...byKey.values()].sort((left, right) => compareBytes(left.key, right.key));
}

/** `""`: every ready endpoint. */
export type TopologyMode = "" | "PreferSameNode" | "PreferSameZone";

/** Receives the reason why topology hints are ignored; `verbosity` is the log level kube-proxy gives the line. */
export type TopologyNote = (verbosity: number, message: string) => void;

/**
 * Decides which topology hints apply to the endpoints of one ServicePort. Only ready endpoints count: one without a hint
 * switches that kind of hint off, and at least one must name this node (or its zone).
 *
 * Source: kube-proxy 1.36 topologyModeFromHints.
 */
export function topologyMode(
  endpoints: readonly Endpoint[],
  node: NodeFacts,
  note?: TopologyNote,
): TopologyMode {
  let anyReady = false;
  let allHaveNodes = true;
  let allHaveZones = true;
  let someForNode = false;
  let someForZone = false;
  for (const endpoint of endpoints) {
    if (!endpoint.ready) continue;
    anyReady = true;
    if (endpoint.nodeHints.length === 0) allHaveNodes = false;
    else if (endpoint.nodeHints.includes(node.name)) someForNode = true;
    if (endpoint.zoneHints.length === 0) allHaveZones = false;
    else if (endpoint.zoneHints.includes(node.zone)) someForZone = true;
  }
  if (!anyReady) return "";

  if (allHaveNodes && someForNode && node.name !== "") return "PreferSameNode";
  if (allHaveNodes) note?.(2, "node hints are ignored: no endpoint is meant for this node");
  else note?.(7, "node hints are ignored: an endpoint has none");

  if (allHaveZones && someForZone && node.zone !== "") return "PreferSameZone";
  if (!allHaveZones) note?.(7, "zone hints are ignored: an endpoint has none");
  else if (node.zone === "") {
    note?.(2, "zone hints are ignored: node is missing label topology.kubernetes.io/zone");
  } else note?.(2, `zone hints are ignored: no endpoint is meant for zone ${node.zone}`);
  return "";
}

/** True if the endpoint is meant for this node under `mode`. */
export function isAvailableFor(mode: TopologyMode, endpoint: Endpoint, node: NodeFacts): boolean {
  switch (mode) {
    case "":
      return true;
    case "PreferSameNode":
      return endpoint.nodeHints.includes(node.name);
    case "PreferSameZone":
      return endpoint.zoneHints.includes(node.zone);
  }
}
