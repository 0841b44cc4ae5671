/**
 * Why an endpoint gets traffic or not, in words, by the decisions that the rules are made by.
 *
 * @module
 */
import { categorizeEndpoints, isAvailableFor, type TopologyMode, topologyMode } from "./endpoint.ts";
import { usesClusterEndpoints, usesLocalEndpoints } from "./service_port.ts";
import type { Endpoint, NodeFacts, ServicePort } from "./state.ts";

/** Whether one endpoint is used under one traffic policy, and why. */
export interface EndpointVerdict {
  readonly isUsed: boolean;
  /** E.g. `ready`, `not ready`, `hints are for zone z2`. */
  readonly reason: string;
}

/** One endpoint of a ServicePort. */
export interface EndpointUse {
  readonly endpoint: Endpoint;
  /** For traffic under policy Cluster; null: the port has none. */
  readonly cluster: EndpointVerdict | null;
  /** For traffic under policy Local; null: the port has none. */
  readonly local: EndpointVerdict | null;
}

/** Uses of all endpoints of a port, with notes about topology hints. */
export interface EndpointUses {
  readonly endpoints: readonly EndpointUse[];
  /** The kind of topology hints that apply. */
  readonly topology: TopologyMode;
  /** Reasons why existing hints are ignored. */
  readonly notes: readonly string[];
}

/** Explains what {@linkcode categorizeEndpoints} decides. */
export function endpointUses(
  endpoints: readonly Endpoint[],
  port: ServicePort,
  node: NodeFacts,
): EndpointUses {
  const notes: string[] = [];
  const { cluster, local } = categorizeEndpoints(
    endpoints,
    port,
    node,
    (_verbosity, note) => notes.push(note),
  );
  const topology = usesClusterEndpoints(port) ? topologyMode(endpoints, node) : "";
  const [inCluster, inLocal] = [new Set(cluster), new Set(local)];
  const hasHints = endpoints.some(({ nodeHints, zoneHints }) => nodeHints.length + zoneHints.length > 0);
  return {
    topology,
    notes: hasHints && topology === "" ? notes : [],
    endpoints: endpoints.map((endpoint) => ({
      endpoint,
      cluster: usesClusterEndpoints(port)
        ? verdict(endpoint, inCluster.has(endpoint), () => hintReason(endpoint, topology, node))
        : null,
      local: usesLocalEndpoints(port)
        ? verdict(endpoint, inLocal.has(endpoint), () => localReason(endpoint))
        : null,
    })),
  };
}

function verdict(endpoint: Endpoint, isUsed: boolean, why: () => string | null): EndpointVerdict {
  const { ready, serving, terminating } = endpoint;
  if (isUsed) {
    return { isUsed, reason: ready ? "ready" : "terminating, and used because no endpoint is ready" };
  }
  const other = why();
  if (other !== null) return { isUsed, reason: other };
  if (terminating) {
    return {
      isUsed,
      reason: serving ? "terminating, and others are ready" : "terminating and not serving any more",
    };
  }
  return { isUsed, reason: "not ready" };
}

/** Reason why hints exclude the endpoint; null if they do not. */
function hintReason(endpoint: Endpoint, mode: TopologyMode, node: NodeFacts): string | null {
  if (!endpoint.ready || isAvailableFor(mode, endpoint, node)) return null;
  return mode === "PreferSameNode"
    ? `hint: it is for node ${endpoint.nodeHints.join(", ")}, this is ${node.name}`
    : `hint: it is for zone ${endpoint.zoneHints.join(", ")}, this is ${node.zone}`;
}

function localReason({ isLocal }: Endpoint): string | null {
  return isLocal ? null : "policy Local: it is not on this node";
}
