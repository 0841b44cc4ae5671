/**
 * What the `mutate` task takes out of, or gets wrong in, the model: first the decisions that
 * `tests/flows/guards.ts` has numbers for, then others.
 *
 * @module
 */
import type { Mutation } from "./mutate.ts";

const ENDPOINT = "lib/model/endpoint.ts";
const SLICES = "lib/model/endpoint_slices.ts";
const SERVICE_PORT = "lib/model/service_port.ts";
const NODE = "lib/model/node.ts";
const CLAIMS = "lib/model/destination_claims.ts";
const DECODE_VALUES = "lib/source/decode/decode_values.ts";

function edit(name: string, file: string, find: string, replace: string): Mutation {
  return { name, edits: [{ file, find, replace }] };
}

const VECTORS: readonly Mutation[] = [
  edit(
    "vector 1: endpoints that are not ready",
    ENDPOINT,
    "endpoint.ready && isAvailableFor(",
    "isAvailableFor(",
  ),
  edit(
    "vector 2: no fallback to draining endpoints",
    ENDPOINT,
    "if (cluster.length === 0) cluster = endpoints.filter(isDraining);",
    "",
  ),
  edit(
    "vector 2: draining need not serve",
    ENDPOINT,
    "return endpoint.serving && endpoint.terminating;",
    "return endpoint.terminating;",
  ),
  edit(
    "vector 2: serving is enough",
    ENDPOINT,
    "return endpoint.serving && endpoint.terminating;",
    "return endpoint.serving;",
  ),
  edit("vector 3: no zone hints", ENDPOINT, 'return "PreferSameZone";\n  if', 'return "";\n  if'),
  edit(
    "vector 4: a missing zone hint is no veto",
    ENDPOINT,
    "if (endpoint.zoneHints.length === 0) allHaveZones = false;\n    else if",
    "if",
  ),
  edit("vector 5: no endpoint of the zone", ENDPOINT, "allHaveZones && someForZone &&", "allHaveZones &&"),
  edit("vector 6: endpoints that are not ready have a say", ENDPOINT, "if (!endpoint.ready) continue;", ""),
  edit("vector 7: no node hints", ENDPOINT, 'return "PreferSameNode";\n  if', 'return "";\n  if'),
  edit(
    "vector 7: a missing node hint is no veto",
    ENDPOINT,
    "if (endpoint.nodeHints.length === 0) allHaveNodes = false;\n    else if",
    "if",
  ),
  edit("vector 8: no endpoint of the node", ENDPOINT, "allHaveNodes && someForNode &&", "allHaveNodes &&"),
  edit(
    "vector 9: no draining endpoint of the node",
    ENDPOINT,
    "local = endpoints.filter((endpoint) => endpoint.isLocal && isDraining(endpoint));",
    "",
  ),
  edit(
    "vector 9: local ones need not be ready",
    ENDPOINT,
    "endpoint.isLocal && endpoint.ready)",
    "endpoint.isLocal)",
  ),
  edit(
    "vector 10: local ones may be elsewhere",
    ENDPOINT,
    "endpoint.isLocal && endpoint.ready)",
    "endpoint.ready)",
  ),
  edit(
    "vector 11: endpoints elsewhere do not count",
    ENDPOINT,
    "cluster.length > 0 || endpoints.some((endpoint) => endpoint.ready || isDraining(endpoint))",
    "cluster.length > 0",
  ),
  edit(
    "vector 11: draining endpoints elsewhere do not count",
    ENDPOINT,
    "endpoint.ready || isDraining(endpoint)",
    "endpoint.ready",
  ),
  edit(
    "vector 12: internal policy Local leaves no cluster endpoints",
    SERVICE_PORT,
    "return !port.internalPolicyLocal || isExternallyAccessible(port);",
    "return !port.internalPolicyLocal;",
  ),
  edit(
    "vector 13: policy Local without anything external",
    SERVICE_PORT,
    "return port.internalPolicyLocal || (port.externalPolicyLocal && isExternallyAccessible(port));",
    "return port.internalPolicyLocal || port.externalPolicyLocal;",
  ),
  edit(
    "vector 14: never refuse",
    ENDPOINT,
    "allReachable: cluster, hasAny: cluster.length > 0 }",
    "allReachable: cluster, hasAny: true }",
  ),
  edit(
    "vector 14: never refuse without any",
    ENDPOINT,
    "local: [], allReachable: [], hasAny: false }",
    "local: [], allReachable: [], hasAny: true }",
  ),
  edit(
    "vector 15: a terminating duplicate wins",
    SLICES,
    "return later.terminating ? earlier : later;",
    "return later.terminating ? later : earlier;",
  ),
  edit(
    "vector 15: the earlier duplicate wins",
    SLICES,
    "if (earlier.terminating !== later.terminating) return later.terminating ? earlier : later;",
    "return earlier;",
  ),
  edit(
    "vector 15: the later duplicate wins",
    SLICES,
    "if (earlier.terminating !== later.terminating) return later.terminating ? earlier : later;",
    "return later;",
  ),
  edit(
    "vector 15: duplicates stay",
    SLICES,
    "if (last === undefined || last.key !== endpoint.key) kept.push(endpoint);",
    "if (true) kept.push(endpoint);",
  ),
  {
    name: "vector 16: an absent port name is an empty one",
    edits: [
      {
        file: SLICES,
        find: "if (name === null) return reportProblem",
        replace: "if (false) return reportProblem",
      },
      {
        file: SLICES,
        find: "wanted.get(name)",
        replace: 'wanted.get(name ?? "")',
      },
    ],
  },
  edit(
    "vector 17, 18: hints count for the local policy",
    ENDPOINT,
    "endpoint.isLocal && endpoint.ready)",
    "endpoint.isLocal && endpoint.ready && isAvailableFor(topologyMode(endpoints, node), endpoint, node))",
  ),
  {
    ...edit(
      "vector 18: local endpoints left out by hints are not reachable",
      ENDPOINT,
      "if (!filteredByHints && !drainingLocal) allReachable",
      "if (true) allReachable",
    ),
    unitTests: true,
  },
];

const OTHERS: readonly Mutation[] = [
  edit(
    "a Service without a creation time is the oldest",
    CLAIMS,
    "left.createdAtSeconds ?? Infinity",
    "left.createdAtSeconds ?? -Infinity",
  ),
  edit(
    "source ranges are not trimmed",
    SERVICE_PORT,
    "const trimmed = text.trim();",
    "const trimmed = text;",
  ),
  edit(
    "affinity without being asked",
    SERVICE_PORT,
    'service.sessionAffinity === "ClientIP" ? service.affinityTimeoutSeconds : 0',
    "service.affinityTimeoutSeconds",
  ),
  edit(
    "no affinity",
    SERVICE_PORT,
    'service.sessionAffinity === "ClientIP" ? service.affinityTimeoutSeconds : 0',
    "0",
  ),
  edit(
    "the first cluster IP whatever the family",
    SERVICE_PORT,
    "clusterIPs[index]",
    "clusterIPs[0]",
  ),
  edit(
    "endpoints at the second address",
    DECODE_VALUES,
    "return checkedTextsAt(parent, key, check)[0];",
    "return checkedTextsAt(parent, key, check).at(-1);",
  ),
  edit("no loopback range", NODE, "containsIPv4Loopback = true;", ""),
];

export const MODEL_MUTATIONS: readonly Mutation[] = [...VECTORS, ...OTHERS];
