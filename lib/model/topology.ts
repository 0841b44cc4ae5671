/**
 * Which ready endpoints topology hints leave to this node.
 *
 * @module
 */
import type { Endpoint, NodeFacts } from "./state.ts";

/** `""`: every ready endpoint. */
export type TopologyMode = "" | "PreferSameNode" | "PreferSameZone";

/** Receives why hints were passed over; `verbosity` is the log level kube-proxy gives the line. */
export type TopologyNote = (verbosity: number, message: string) => void;

/**
 * Decides whose hints count for all endpoints of one ServicePort. Only ready endpoints are asked: one without a hint
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
